//! A binary that links `ring` computes checksums with the processor's instructions, not with a
//! table.

use crc_fast::{CrcAlgorithm, get_calculator_target};
use std::fs;

#[test]
fn the_processor_s_instructions_are_used_where_it_has_them() {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").expect("procfs");
    let wanted = if cfg!(target_arch = "x86_64") { "pclmulqdq" } else { "pmull" };
    let able = cpuinfo.split_whitespace().any(|word| word == wanted);
    let target = get_calculator_target(CrcAlgorithm::Crc32Iscsi);
    assert_eq!(target.starts_with("software"), !able, "{target} with {wanted}: {able}");
}
