//! The machine, and groups of cases as tables.

use std::sync::atomic::AtomicBool;

use farjump_benches::rounds::Group;

use crate::Failure;

/// Prints the machine's description.
pub(crate) fn machine() {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        model.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown processor");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("{model}, Linux {}", kernel.trim());
}

/// Measures a group in these rounds, and prints it.
///
/// # Errors
/// A case cannot be measured.
pub(crate) fn run(mut group: Group<'_>, title: String, rounds: usize) -> Result<(), Failure> {
    group.title = title;
    group.run(rounds, &AtomicBool::new(false))?;
    print!("{}", group.table());
    Ok(())
}
