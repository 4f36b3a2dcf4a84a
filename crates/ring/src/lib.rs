//! `ring`.
