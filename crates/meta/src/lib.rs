//! `meta`.
