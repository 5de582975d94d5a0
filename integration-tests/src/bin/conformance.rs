//! Runs the conformance suite over everything that farjump has on this machine, and prints its matrix.
//!
//! `conformance [NAME]…` runs the subjects with these names only. Status 0 if all conform, 1 if one does not, 77 if none of
//! them is there to be tried, 2 for anything else. `conformance --libraries FOLDER` builds the functions that the suite
//! injects, and runs nothing: for a machine without a compiler.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use farjump_integration_tests::conformance::{
    Candidate, Cell, Matrix, Subject, Verdict, build_into, candidates, run_telling,
};

/// What a test program ends with that was skipped (automake's manual, "Scripts-based Testsuites").
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [option, folder] = &*wanted
        && option == "--libraries"
    {
        return match build_into(Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("the libraries cannot be built into {folder}: {failure}");
                ExitCode::from(2)
            }
        };
    }
    let candidates = candidates(|name| vec![OsString::from(name)]);
    if let Some(unknown) = wanted.iter().find(|name| candidates.iter().all(|known| known.name() != *name)) {
        let known: Vec<_> = candidates.iter().map(Candidate::name).collect();
        eprintln!("there is no subject {unknown:?}; there are: {}", known.join("; "));
        return ExitCode::from(2);
    }
    let mut matrix = Matrix::default();
    let mut tried = false;
    for candidate in candidates {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == candidate.name()) {
            continue;
        }
        match candidate {
            Candidate::Here(subject) => {
                let begun = Instant::now();
                let outcome = run_telling(&subject, |cell| tell(&subject, cell, begun));
                let word = if outcome.conforms() { "conforms" } else { "does not conform" };
                eprintln!("{} {word}", subject.name());
                matrix.add(outcome);
                tried = true;
            }
            Candidate::Missing { name, why } => {
                println!("skipped: {name}: {why}");
                matrix.add_missing(name, &why);
            }
        }
    }
    print!("{matrix}");
    match (tried, matrix.conforms()) {
        (false, _) => ExitCode::from(SKIPPED),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    }
}

/// A line for each check that has ended: on a slow machine it is good to know how far the suite has come, and how far it came.
fn tell(subject: &Subject, cell: &Cell, begun: Instant) {
    let word = match &cell.verdict {
        Verdict::Ok(_) => "ok".to_owned(),
        Verdict::Skipped(_) => return,
        Verdict::Failed(why) => format!("failed: {why}"),
        other => format!("{other:?}"),
    };
    let (name, at, level, check) = (subject.name(), begun.elapsed().as_secs(), cell.level, cell.check);
    eprintln!("{at:4} s  {name}, {level}, {check}: {word}");
}
