//! `disk`.
