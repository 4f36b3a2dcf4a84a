//! `library`.
