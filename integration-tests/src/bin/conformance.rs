//! Runs the conformance suite over everything that farjump has on this machine, and prints its matrix.
//!
//! | command | does |
//! |---|---|
//! | `conformance [NAME]…` | runs the subjects with these names; all if none is named |
//! | `conformance --serve HOST:PORT` | starts targets for another machine; **peers run anything in them** |
//! | `conformance --at HOST:PORT NAME…` | runs subjects with targets from there |
//! | `conformance --stream FRAMES NAME` | sends frames of 8 B to 8 KiB, and compares each byte on arrival |
//! | `conformance --tear WRITES NAME` | writes 32 B to 8 KiB, polling the last word: passes if one tears |
//! | `conformance --libraries FOLDER` | builds the suite's functions, for a machine without a compiler |

use std::ffi::OsString;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use farjump_integration_tests::conformance::{
    Candidate, Cell, Matrix, Subject, Verdict, build_into, candidate, last_words, names, run_reporting,
    serve_targets, stream,
};

/// Exit status of a skipped test program (automake's manual, "Scripts-based Testsuites").
///
/// Status 0 if all is well, 1 if a check failed, 77 if there is nothing to try, 2 for anything else. A
/// `--tear` run that saw no torn write also ends with 77: a path without a guarantee need not ever tear one.
const SKIPPED: u8 = 77;
/// Exit status after a request for something unknown.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["--libraries", folder] => build_into(Path::new(folder))
            .map(|()| ExitCode::SUCCESS)
            .map_err(|failure| format!("the libraries cannot be built into {folder}: {failure}")),
        ["--serve", address] => serve(address),
        ["--at", address, ref names @ ..] if !names.is_empty() => run(names, Some(address)),
        ["--stream", frames, name] => send(frames, name),
        ["--tear", writes, name] => tear(writes, name),
        [option, ..] if option.starts_with('-') => Err(format!("{option} is no option, or stands alone")),
        ref names => run(names, None),
    };
    ended.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(MISUSED)
    })
}

/// The arguments with which this program runs a subject.
fn again(name: &str) -> Vec<OsString> {
    vec![name.into()]
}

fn unknown(name: &str) -> String {
    format!("there is no subject {name:?}; there are: {}", names().join("; "))
}

/// Runs the suite over the named subjects, or all; with targets from `elsewhere`, if given.
fn run(wanted: &[&str], elsewhere: Option<&str>) -> Result<ExitCode, String> {
    if let Some(name) = wanted.iter().find(|name| !names().contains(name)) {
        return Err(unknown(name));
    }
    let elsewhere = match elsewhere {
        None => None,
        Some(text) => {
            let mut found = text.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
            Some(found.next().ok_or_else(|| format!("{text} is no address"))?)
        }
    };
    let mut matrix = Matrix::default();
    let mut tried = false;
    let wanted = names().into_iter().filter(|name| wanted.is_empty() || wanted.contains(name));
    for candidate in wanted.filter_map(|name| candidate(name, again)) {
        match candidate {
            Candidate::Here(subject) => {
                let subject = elsewhere.into_iter().fold(subject, Subject::served_at);
                let begun = Instant::now();
                let outcome = run_reporting(&subject, |cell| report(&subject, cell, begun));
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
    Ok(match (tried, matrix.conforms()) {
        (false, _) => ExitCode::from(SKIPPED),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}

/// Prints a line for each finished check, to show the progress on a slow machine.
fn report(subject: &Subject, cell: &Cell, begun: Instant) {
    let word = match &cell.verdict {
        Verdict::Ok(_) => "ok".to_owned(),
        Verdict::Skipped(_) => return,
        Verdict::Failed(why) => format!("failed: {why}"),
        other => format!("{other:?}"),
    };
    let (name, at, level, check) = (subject.name(), begun.elapsed().as_secs_f32(), cell.level, cell.check);
    eprintln!("{at:6.1} s  {name}, {level}, {check}: {word}");
}

/// Starts targets for other machines until this program is killed.
fn serve(address: &str) -> Result<ExitCode, String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("listening at {address}: {error}"))?;
    let at = listener.local_addr().map_err(|error| format!("listening at {address}: {error}"))?;
    println!("ready: {at}");
    let known = |name: &str| names().contains(&name).then(|| again(name));
    serve_targets(&listener, known)
        .map(|()| ExitCode::SUCCESS)
        .map_err(|failure| format!("serving at {at}: {failure}"))
}

/// The subject of this name; or the exit status of this program if it is missing.
fn subject(name: &str) -> Result<Result<Subject, ExitCode>, String> {
    Ok(match candidate(name, again).ok_or_else(|| unknown(name))? {
        Candidate::Here(subject) => Ok(subject),
        Candidate::Missing { why, .. } => {
            println!("skipped: {name}: {why}");
            Err(ExitCode::from(SKIPPED))
        }
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text:?} is no number: {error}"))
}

/// Sends frames, and compares each byte.
fn send(frames: &str, name: &str) -> Result<ExitCode, String> {
    let frames = number(frames)?;
    let subject = match subject(name)? {
        Ok(subject) => subject,
        Err(ended) => return Ok(ended),
    };
    let (rule, begun) = (subject.rule(), Instant::now());
    let seen = match stream(&subject, rule, frames) {
        Ok(seen) => seen,
        Err(failure) => {
            println!("{name}, {}: {failure}", rule.describe());
            return Ok(ExitCode::FAILURE);
        }
    };
    println!(
        "{name}, {}: {} frames of 8 B to 8 KiB came whole in {:.1} s; {}",
        rule.describe(),
        seen.whole,
        begun.elapsed().as_secs_f32(),
        seen.torn.as_deref().unwrap_or("none was torn")
    );
    Ok(if seen.torn.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes, and polls the last word of each write.
fn tear(writes: &str, name: &str) -> Result<ExitCode, String> {
    let writes = number(writes)?;
    let subject = match subject(name)? {
        Ok(subject) => subject,
        Err(ended) => return Ok(ended),
    };
    let seen = match last_words(&subject, writes) {
        Ok(seen) => seen,
        Err(failure) => {
            println!("{name}: {failure}");
            return Ok(ExitCode::FAILURE);
        }
    };
    println!("{name}: of {writes} writes {} were not whole when their last word was there", seen.torn);
    Ok(match seen.first {
        Some(first) => {
            println!("{first}");
            ExitCode::SUCCESS
        }
        None => {
            println!("skipped: {name} tore none of {writes} writes that it did not promise to keep whole");
            ExitCode::from(SKIPPED)
        }
    })
}
