//! `lane`.
