//! `data`.
