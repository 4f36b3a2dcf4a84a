//! `bench`: the benchmarks of `lanefs bench`: a load, a limit beside it, and rows that say both.
//!
//! It measures and asserts nothing but what makes a measurement worthless. Invariant: what is
//! compared was run in the same run, alternating, under the same load generator.

mod rounds;
mod row;

pub use rounds::{alternate, median, spread};
pub use row::Row;
