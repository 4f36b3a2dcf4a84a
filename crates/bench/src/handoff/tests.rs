//! Each mechanism runs for a moment.
#![allow(clippy::unwrap_used)]
use super::*;

fn rows() -> Vec<Row> {
    run(&Home::new(&Options::tiny(0.02)).unwrap()).unwrap()
}

fn cpu_us(rows: &[Row], name: &str) -> f64 {
    rows.iter().find(|row| row.row == name).unwrap().cpu_us_per_op.unwrap()
}

#[test]
fn every_way_has_rows() {
    // Before the home is made, because it pins this thread to one CPU.
    let places = if ring::core_count() > 1 { 2 } else { 1 };
    let rows = rows();
    let (spinning, sleeping): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.row.starts_with("spin"));
    for row in &sleeping {
        for value in [row.ops_per_s, row.mean_us, row.p50_us, row.p99_us, row.cpu_us_per_op] {
            assert!(value.unwrap() > 0.0, "{row:?}");
        }
        assert!(row.spread.unwrap() >= 0.0, "{row:?}");
        assert_eq!((row.server_busy, row.generator_busy), (None, None));
    }
    // Messages between rings need io_uring; the row has a note where it is missing.
    let rows_with_note = rows.iter().filter(|row| row.note.is_some()).count();
    let missing = DriverChoice::Only(DriverKind::IoUring).find().is_err();
    assert_eq!(rows_with_note, usize::from(missing));
    let way_count = Way::ALL.len() - 1 - rows_with_note;
    assert_eq!(sleeping.len(), places * way_count * ITEM_COUNTS.len());
    assert_eq!(spinning.len(), (places - 1) * ITEM_COUNTS.len());
    assert!(spinning.iter().all(|row| row.mean_us.unwrap() > 0.0 && row.p50_us.is_none()));
    // Both threads on one CPU: the sender must sleep for the receiver to run. Other programs on
    // that CPU add switches and remove none.
    let one = rows.iter().find(|row| row.row == "condvar 1-core 1-item").unwrap();
    assert!(one.switches_per_op.unwrap() > 0.5, "{one:?}");
    let ratio = cpu_us(&rows, "condvar 1-core 64-items") / cpu_us(&rows, "condvar 1-core 1-item");
    println!("64 items a wake-up cost {ratio} of what each costs alone");
}

#[test]
fn an_interrupted_game_ends_both_threads() {
    let options = Options::tiny(10.0);
    options.interrupt.set();
    for way in Way::ALL {
        let cores = ring::usable_cores().unwrap();
        let cores = [cores[0], cores[cores.len() - 1]];
        let contender = Contender { way, cores, item_count: 8 };
        assert!(measure(&contender, &options).is_err(), "{way:?}");
    }
}
