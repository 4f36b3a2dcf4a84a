//! `store`.
