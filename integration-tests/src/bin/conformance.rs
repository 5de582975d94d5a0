//! Runs the conformance suite over everything that farjump has on this machine, and prints its matrix.
//!
//! | command | does |
//! |---|---|
//! | `conformance [NAME]…` | runs the subjects with these names; all unless some are named |
//! | `conformance --serve HOST:PORT` | starts targets for the suite on another machine; **whoever reaches it has what he likes run in them** |
//! | `conformance --at HOST:PORT NAME…` | runs them with targets from there |
//! | `conformance --stream FRAMES NAME` | sends so many frames of 8 B to 8 KiB, and compares each byte of each as it arrives |
//! | `conformance --tear WRITES NAME` | makes so many writes of 32 B to 8 KiB, and polls the last word of each: passes if one is seen to be torn |
//! | `conformance --libraries FOLDER` | builds the functions that the suite injects, for a machine without a compiler |
//!
//! Status 0 if all is well, 1 if something is not, 77 if there is nothing to try, 2 for anything else. A run that was to see a torn
//! write and saw none ends with 77 too: that a path promises nothing does not mean that it ever breaks.

use std::ffi::OsString;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use farjump_integration_tests::conformance::{
    Candidate, Cell, Matrix, Subject, Verdict, build_into, candidate, last_words, names, run_telling,
    serve_targets, stream,
};

/// What a test program ends with that was skipped (automake's manual, "Scripts-based Testsuites").
const SKIPPED: u8 = 77;
/// What it ends with that was asked for something that it does not have.
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

/// Runs the suite over the subjects that are named, or all; with targets from `elsewhere`, if there is such an address.
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
    Ok(match (tried, matrix.conforms()) {
        (false, _) => ExitCode::from(SKIPPED),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}

/// A line for each check that has ended: on a slow machine it is good to know how far the suite has come, and how far it came.
fn tell(subject: &Subject, cell: &Cell, begun: Instant) {
    let word = match &cell.verdict {
        Verdict::Ok(_) => "ok".to_owned(),
        Verdict::Skipped(_) => return,
        Verdict::Failed(why) => format!("failed: {why}"),
        other => format!("{other:?}"),
    };
    let (name, at, level, check) = (subject.name(), begun.elapsed().as_secs_f32(), cell.level, cell.check);
    eprintln!("{at:6.1} s  {name}, {level}, {check}: {word}");
}

/// Starts targets for whoever asks, until it is killed.
fn serve(address: &str) -> Result<ExitCode, String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("listening at {address}: {error}"))?;
    let at = listener.local_addr().map_err(|error| format!("listening at {address}: {error}"))?;
    println!("ready: {at}");
    let known = |name: &str| names().contains(&name).then(|| again(name));
    serve_targets(&listener, known)
        .map(|()| ExitCode::SUCCESS)
        .map_err(|failure| format!("serving at {at}: {failure}"))
}

/// The subject of this name; or how this program ends without it.
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

/// Sends frames, and compares each byte of each.
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

/// Makes writes, and polls their last words.
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
