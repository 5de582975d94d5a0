//! Runs the conformance suite over everything that farjump has on this machine, and prints its matrix.
//!
//! `conformance [NAME]…` runs the subjects with these names only. Status 0 if all conform.

use std::ffi::OsString;
use std::process::ExitCode;

use farjump_integration_tests::conformance::{Candidate, Matrix, candidates, run};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let candidates = candidates(|name| vec![OsString::from(name)]);
    if let Some(unknown) = wanted.iter().find(|name| candidates.iter().all(|known| known.name() != *name)) {
        let known: Vec<_> = candidates.iter().map(Candidate::name).collect();
        eprintln!("there is no subject {unknown:?}; there are: {}", known.join("; "));
        return ExitCode::from(2);
    }
    let mut matrix = Matrix::default();
    for candidate in candidates {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == candidate.name()) {
            continue;
        }
        match candidate {
            Candidate::Here(subject) => {
                let outcome = run(&subject);
                let word = if outcome.conforms() { "conforms" } else { "does not conform" };
                eprintln!("{} {word}", subject.name());
                matrix.add(outcome);
            }
            Candidate::Missing { name, why } => matrix.add_missing(name, &why),
        }
    }
    print!("{matrix}");
    if matrix.conforms() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
