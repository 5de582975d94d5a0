//! The guard on the hot path, run as a program.

#![cfg(target_arch = "x86_64")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_farjump_guard");

/// Counts over shared memory with the record in `file`. `None`, with a message, where nothing can be counted.
fn guard(file: &Path, args: &[&str]) -> Result<Option<Output>, Box<dyn Error>> {
    counted(&mut Command::new(PROGRAM), file, args)
}

fn counted(command: &mut Command, file: &Path, args: &[&str]) -> Result<Option<Output>, Box<dyn Error>> {
    let output =
        command.args(["--transports", "shm", "--turns", "4", "--file"]).arg(file).args(args).output()?;
    if output.status.code() == Some(3) {
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        return Ok(None);
    }
    Ok(Some(output))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn counts_repeat_exactly_wherever_files_lie_and_whatever_the_environment_is() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("first.json"), folder.path().join("second.json"));
    let elsewhere =
        folder.path().join("a-folder-with-a-name-of-more-than-a-line-of-64-bytes-in-all-its-length");
    fs::create_dir(&elsewhere)?;
    let copy = elsewhere.join("guard");
    fs::copy(PROGRAM, &copy)?;
    let mut again = Command::new(&copy);
    again.env("TMPDIR", &elsewhere).env("ANOTHER", "variable").env("UCX_TLS", "tcp");
    for (command, file) in [(&mut Command::new(PROGRAM), &first), (&mut again, &second)] {
        let Some(output) = counted(command, file, &["--record"])? else { return Ok(()) };
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    // A client that gets an object looks at its control connection each millisecond, by the clock.
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|row| !row.contains("\"operation\":\"get\"")).map(str::to_owned).collect()
    };
    let (first, second) = (fs::read_to_string(first)?, fs::read_to_string(second)?);
    assert_eq!(
        rows(&first).iter().filter(|row| row.contains("\"transport\":\"shm\"")).count(),
        16,
        "{first}"
    );
    assert_eq!(rows(&first), rows(&second));
    Ok(())
}

#[test]
fn an_operation_that_does_more_fails_the_guard_and_is_named() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("record.json");
    let Some(output) = guard(&file, &["--record"])? else { return Ok(()) };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let Some(same) = guard(&file, &[])? else { return Ok(()) };
    assert!(same.status.success(), "{}{}", text(&same.stdout), text(&same.stderr));
    let Some(slower) = guard(&file, &["--burden", "100"])? else { return Ok(()) };
    let said = text(&slower.stderr);
    assert_eq!(slower.status.code(), Some(1), "{said}");
    for operation in ["send", "poll", "round trip"] {
        assert!(said.contains(&format!("shm, cached, 8 B, {operation}: +")), "{said}");
    }
    Ok(())
}

#[test]
fn the_guard_refuses_an_unknown_transport_and_lists_known_ones() -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["--transports", "pigeon"]).output()?;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pigeon") && said.contains("shm"), "{said}");
    Ok(())
}
