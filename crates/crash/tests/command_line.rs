//! The crash tests' own command line.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn crash(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lanefs-crash")).args(arguments).output().unwrap()
}

#[test]
fn the_table_names_the_test_of_each_scenario() {
    let output = crash(&["list"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for number in 1..=35 {
        let row = text.lines().find(|line| line.starts_with(&format!("| S{number} | ")));
        let how = row.and_then(|row| row.rsplit(" | ").next()).unwrap();
        assert!(how.contains("--scenario") || how.starts_with("not here: "), "S{number}: {how}");
    }
}

#[test]
fn an_unknown_scenario_is_named_in_the_error() {
    let output = crash(&["run", "--lanefs", "/none", "--place", "/none", "--scenario", "S99"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("S99"), "{errors}");
}
