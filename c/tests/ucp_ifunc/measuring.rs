//! Cost of the interface beside the library and UCX's active messages (`benches/ucp_ifunc.c`).

use crate::fixture::{Lane, fixture, pinned};

/// Runs the program, and returns its table.
fn measure(rounds: &str, longest: &str, processors: Option<[&str; 2]>) -> Option<String> {
    let fixture = fixture()?;
    fixture.measured_ifunc("mark", "libmark");
    fixture.measured_ifunc("mark", "mark");
    fixture.measured_ifunc("bounce", "bounce");
    let program = fixture.measuring_program();
    let libraries = fixture.libraries();
    let folder = libraries.to_str().unwrap().to_owned();
    let arguments = [folder.as_str(), rounds, longest];
    let pin = |role: &str, command| match processors {
        Some([target, source]) => pinned(&command, if role == "target" { target } else { source }),
        None => command,
    };
    let [_, table] = fixture.run_pair_with(&program, Lane::Posix, [&libraries, &libraries], &arguments, pin);
    Some(table)
}

#[test]
fn the_measurement_runs() {
    let Some(table) = measure("1", "8", None) else { return };
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{table}");
    for row in rows {
        let numbers = row.split_whitespace().skip(2).map(|number| number.parse::<f64>());
        assert!(numbers.clone().all(|number| number.is_ok_and(|number| number >= 0.0)), "{table}");
        assert_eq!(numbers.count(), 10, "{table}");
    }
}

/// `cargo test --release -p farjump-c --test ucp_ifunc -- --ignored --nocapture figures`, on an otherwise
/// idle machine.
#[test]
#[ignore = "measures: two processors with nothing else to do, and a release build"]
fn figures() {
    if let Some(table) = measure("15", "1048576", Some(["1", "0"])) {
        println!("{table}");
    }
}
