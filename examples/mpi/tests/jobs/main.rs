//! Jobs of MPI on this machine: the conformance suite over the transport, the programs, and the reuse of
//! regions.

#[cfg(feature = "mpi")]
mod job;
#[cfg(feature = "mpi")]
mod regions;
#[cfg(feature = "mpi")]
mod workers;

#[cfg(not(feature = "mpi"))]
#[test]
fn the_transport_over_mpi_windows_passes_the_conformance_suite() {
    println!(
        "skipped: built without MPI: it takes mpicc of libopenmpi-dev or libmpich-dev, and the feature mpi of this package"
    );
}

#[cfg(feature = "mpi")]
#[test]
fn the_transport_over_mpi_windows_passes_the_conformance_suite() {
    let program = env!("CARGO_BIN_EXE_mpi_conformance");
    let Some(output) = job::run(&job::MEMORY, 2, program, [""; 0]) else { return };
    for table in ["channels", "links, cached, one process", "links, cached, two processes"] {
        was_tried(table, &output);
    }
}

#[cfg(feature = "mpi")]
#[test]
fn conformance_passes_where_the_window_needs_a_worker_in_each_rank() {
    let program = env!("CARGO_BIN_EXE_mpi_conformance");
    let Some(output) = job::run(&job::MESSAGES, 2, program, [""; 0]) else { return };
    assert!(output.contains(": the window needs a worker in each rank\n"), "{output}");
    for table in ["channels", "links, cached, two processes"] {
        was_tried(table, &output);
    }
}

/// Checks that the table of this title has a row with passed checks for each rule. The program has reported
/// that none failed.
#[cfg(feature = "mpi")]
fn was_tried(table: &str, output: &str) {
    let rows: Vec<_> = output.split(table).nth(1).unwrap_or_default().lines().skip(1).take(2).collect();
    let [fenced, checked] = rows[..] else { panic!("no table {table}:\n{output}") };
    assert!(fenced.starts_with("mpi-window ") && fenced.contains("  ok  "), "{table}:\n{output}");
    assert!(checked.starts_with("mpi-window, checked ") && checked.contains("  ok  "), "{table}:\n{output}");
}

#[cfg(feature = "mpi")]
#[test]
fn seven_ranks_get_right_replies_from_rank_0_during_its_simulation() {
    use farjump::build::{Options, build};

    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("libhottest.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/hottest.c").into();
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    // Seven mailboxes lie in the window of rank 0.
    let Some(output) = job::run(&job::MEMORY, 8, env!("CARGO_BIN_EXE_mpi_heat"), [folder.path(), &output])
    else {
        return;
    };
    for rank in 1..8 {
        let line = format!("rank {rank}: 20 answers of rank 0 are right, ");
        assert!(output.contains(&line), "{output}");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn sixteen_ranks_connect_with_each_other() {
    // Sixteen ranks that carry out each other's writes keep all processors busy for minutes.
    if !job::has_shared_windows() {
        return println!("skipped: the windows of this MPI are not in shared memory");
    }
    // The built-in transport that took longest.
    let transport = "ucx-put";
    if !farjump::transports::available().iter().any(|own| own.name == transport && own.usable.is_ok()) {
        return println!("skipped: {transport} cannot be used here");
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = [folder.path(), transport.as_ref()];
    let Some(output) = job::run(&job::MEMORY, 16, env!("CARGO_BIN_EXE_mpi_mesh"), arguments) else { return };
    assert!(output.contains(&format!("16 ranks have 240 links over {transport} after ")), "{output}");
}
