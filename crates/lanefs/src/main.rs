//! `lanefs`.
fn main() {}
