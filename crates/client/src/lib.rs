//! `client`.
