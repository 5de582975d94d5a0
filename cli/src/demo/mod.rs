//! `demo`: injects three functions into a process without their code, and checks their results.

mod child;
mod functions;
pub(crate) mod target;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use farjump::{Library, Link};
use serde_json::{Value, json};

use crate::report;
use child::DemoTarget;
use farjump_benches::program::bundled_ifuncs::{self, Source};
use farjump_benches::program::failure::Failure;
use farjump_benches::program::link_options::{KeyFile, UcxTcp};
use farjump_benches::program::output;
use farjump_benches::program::units::{median, microseconds, show_duration};
use farjump_benches::program::workspace::Stage;
use functions::{Answer, Function};

/// Bounds on the later calls of a function, in number and in time. The first one reached ends them.
const LATER_CALLS: (usize, Duration) = (101, Duration::from_millis(100));
/// Rounds of moving the file to the source, and of computing a function there.
const INSTEAD: usize = 3;
/// Longest delay of the target's report of its linking after the reply.
const REPORT_DELAY: Duration = Duration::from_millis(20);

/// See it work: three functions run in a process that has never seen them
///
/// Starts a target that maps FILE, injects histogram, grep and crc32, and compares the results with those
/// that this process computes itself. Needs a C compiler and no privileges; leaves no file behind.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Columns:
  sent           bytes of code and of payload of the first call; later calls send no code
  first call     from injecting to the reply, and how much of it the target took to link the code
  later          the same without code, median
  moving the file instead
                 time to get FILE's bytes from the target over a Unix socket and to compute here

Examples:
  farjump demo
  farjump demo --transport verbs-write --device mlx5_0:1     (both processes use the RDMA device)

Ends with 1 if a result is wrong.")]
pub(crate) struct Demo {
    /// The file that the target maps [default: this program]
    pub(crate) file: Option<PathBuf>,
    /// The literal that grep counts [default: a literal that occurs in FILE]
    #[arg(long, value_name = "STR")]
    pub(crate) literal: Option<OsString>,
    /// The transport [default: the best one]
    #[arg(long, value_name = "NAME", env = "FARJUMP_TRANSPORT", hide_env = true)]
    pub(crate) transport: Option<String>,
    /// Take libhistogram.so, libgrep.so and libcrc32.so from here: for a machine without a C compiler
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// The target's address, such as tcp:127.0.0.1:0 [default: a Unix socket]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Command that starts the target on this machine, such as "ip netns exec far" for another network. Split
    /// at blanks, without quotes
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launch: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// Send frames unencrypted by `tcp` although there is a key, for networks that you trust
    #[arg(long)]
    pub(crate) clear: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Demo) -> Result<(), Failure> {
    let file = match &arguments.file {
        Some(file) => file.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find this program's own file: {error}")))?,
    };
    let unreadable = |error| Failure::new(format!("cannot read `{}`: {error}", file.display()));
    if !fs::metadata(&file).map_err(unreadable)?.is_file() {
        return Err(Failure::new(format!(
            "`{}` is no regular file: the target cannot map it",
            file.display()
        )));
    }
    let contents = fs::read(&file).map_err(unreadable)?;
    let literal = functions::literal(arguments.literal.as_deref(), &contents);
    let functions = functions::all(literal);

    let stage = Stage::set("demo")?;
    let sources = functions.each_ref().map(|function| Source { name: function.name, text: function.source });
    let libraries = match &arguments.libraries {
        // SAFETY: the user names the folder (`--libraries`) with the libraries to run.
        Some(folder) => unsafe { bundled_ifuncs::open(&sources, folder) }?,
        // SAFETY: `sources` are samples of farjump, whose payload routines only fill in payloads.
        None => unsafe { bundled_ifuncs::build(&sources, &stage) }?,
    };
    let mut target = child::start(&stage, &file, arguments, contents.len())?;
    let moving = move_file(&mut target, &contents)?;
    let limit = call_limit(contents.len());
    let mut builder = Link::builder(target.address()).send_timeout(limit);
    builder = builder.ucx_tcp(arguments.ucx.tcp).clear(arguments.clear);
    if let Some(transport) = &arguments.transport {
        builder = builder.transport(transport);
    }
    if let Some(key) = arguments.key.read([target.address()])? {
        builder = builder.key(key);
    }
    let link = builder.connect()?;
    let mut results = Vec::new();
    for (function, library) in functions.iter().zip(&libraries) {
        results.push(Outcome::of(function, library, &link, limit, &contents)?);
    }
    let path = link.path();
    let report = Report {
        path: path.summary(),
        transport: path.transport,
        file,
        bytes: contents.len() as u64,
        moving,
        results,
    };
    report::print(arguments.json, || report.to_json(), || report.to_text(target.pid()))?;
    report.verdict()
}

/// Returns the time limit of a call: far more than any machine needs for a file of this length.
fn call_limit(bytes: usize) -> Duration {
    Duration::from_secs(30 + bytes as u64 / 10_000_000)
}

/// Measures moving the file's bytes from the target to this process, allocation included.
fn move_file(target: &mut DemoTarget, contents: &[u8]) -> Result<Duration, Failure> {
    let mut times = Vec::new();
    for _ in 0..INSTEAD {
        let start = Instant::now();
        let moved = target.fetch()?;
        times.push(start.elapsed());
        if moved != contents {
            return Err(Failure::new(
                "the target's file is not the one that this process reads: did it change?",
            ));
        }
    }
    Ok(median(times).unwrap_or_default())
}

struct Outcome {
    name: &'static str,
    answer: Answer,
    expected: Answer,
    code_bytes: u64,
    payload_bytes: u64,
    first_call: Duration,
    link: Duration,
    later_call: Duration,
    /// Median time to compute it in this process.
    compute: Duration,
}

impl Outcome {
    fn of(
        function: &Function,
        library: &Library,
        link: &Link,
        limit: Duration,
        contents: &[u8],
    ) -> Result<Outcome, Failure> {
        let call = || -> Result<(Duration, Answer), Failure> {
            let start = Instant::now();
            let reply = link.inject(library, &function.args)?.wait(limit)?;
            let time = start.elapsed();
            Ok((time, function.answer(&reply)?))
        };
        let before = link.stats();
        let (first_call, answer) = call()?;
        let after = link.stats();
        if after.frames_with_code != before.frames_with_code + 1 {
            return Err(Failure::new(format!("the target knew `{}` before it was injected", function.name)));
        }
        let linking = link.link_time(library, REPORT_DELAY)?;
        let mut later_calls = Vec::new();
        let start = Instant::now();
        while later_calls.is_empty() || (later_calls.len() < LATER_CALLS.0 && start.elapsed() < LATER_CALLS.1)
        {
            let (time, again) = call()?;
            if again != answer {
                return Err(Failure::new(format!("`{}` replied {answer}, then {again}", function.name)));
            }
            later_calls.push(time);
        }
        let mut computing = Vec::new();
        let mut expected = None;
        for _ in 0..INSTEAD {
            let start = Instant::now();
            expected = Some(function.compute(contents));
            computing.push(start.elapsed());
        }
        Ok(Outcome {
            name: function.name,
            expected: expected.unwrap_or_else(|| function.compute(contents)),
            answer,
            code_bytes: after.code_bytes - before.code_bytes,
            payload_bytes: after.payload_bytes - before.payload_bytes,
            first_call,
            link: linking.unwrap_or_default(),
            later_call: median(later_calls).unwrap_or_default(),
            compute: median(computing).unwrap_or_default(),
        })
    }
}

struct Report {
    transport: String,
    /// The transport, and whether its frames are encrypted.
    path: String,
    file: PathBuf,
    bytes: u64,
    moving: Duration,
    results: Vec<Outcome>,
}

impl Report {
    fn to_text(&self, pid: u32) -> String {
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        let length = show_length(self.bytes);
        let mut text = format!(
            "target   pid {pid} by {}, mapped {} ({length}), knows none of these functions\n",
            self.path,
            Path::new(name).display()
        );
        let mut rows =
            vec![["", "answer", "sent", "first call", "later", "moving the file instead"].map(String::from)];
        rows.extend(self.results.iter().map(|outcome| {
            [
                outcome.name.to_owned(),
                outcome.answer.to_string(),
                format!("{} B + {} B", outcome.code_bytes, outcome.payload_bytes),
                format!("{} ({} linking)", show_duration(outcome.first_call), show_duration(outcome.link)),
                show_duration(outcome.later_call),
                format!("{length}, {} + {}", show_duration(self.moving), show_duration(outcome.compute)),
            ]
        }));
        text += &output::table(&rows);
        if self.wrong().is_empty() {
            text += "all results equal those that this process computed.\n";
        }
        text
    }

    fn to_json(&self) -> Value {
        let function = |outcome: &Outcome| {
            json!({
                "name": outcome.name,
                "answer": outcome.answer.to_json(),
                "expected": outcome.expected.to_json(),
                "code_bytes": outcome.code_bytes,
                "payload_bytes": outcome.payload_bytes,
                "first_call_us": microseconds(outcome.first_call),
                "link_us": microseconds(outcome.link),
                "later_call_us": microseconds(outcome.later_call),
                "fetch_instead_us": microseconds(self.moving + outcome.compute),
            })
        };
        json!({
            "transport": self.transport,
            "path": self.path,
            "file": self.file.to_string_lossy(),
            "file_bytes": self.bytes,
            "functions": self.results.iter().map(function).collect::<Vec<_>>(),
        })
    }

    fn wrong(&self) -> Vec<&Outcome> {
        self.results.iter().filter(|outcome| outcome.answer != outcome.expected).collect()
    }

    fn verdict(&self) -> Result<(), Failure> {
        let wrong = self.wrong();
        if wrong.is_empty() {
            return Ok(());
        }
        let sentences = wrong
            .iter()
            .map(|it| format!("`{}` replied {}, this process computed {}", it.name, it.answer, it.expected));
        Err(Failure::new(sentences.collect::<Vec<_>>().join("; ")))
    }
}

/// Formats a length roughly: `272 B`, `9.1 MB`. Units are powers of 1000, as for files.
fn show_length(bytes: u64) -> String {
    let exact = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", exact / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", exact / 1e6),
        _ => format!("{:.1} GB", exact / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shown_in_units_of_1000() {
        assert_eq!([show_length(272), show_length(9_100_432)], ["272 B", "9.1 MB"]);
        assert_eq!([show_length(1_000), show_length(2_500_000_000)], ["1.0 kB", "2.5 GB"]);
    }

    fn report(crc: u32) -> Report {
        let outcome = Outcome {
            name: "crc32",
            answer: Answer::Crc32(crc),
            expected: Answer::Crc32(7),
            code_bytes: 472,
            payload_bytes: 0,
            first_call: Duration::from_micros(12),
            link: Duration::from_nanos(500),
            later_call: Duration::from_micros(10),
            compute: Duration::from_micros(3),
        };
        let moving = Duration::from_micros(4);
        Report {
            transport: "shm".into(),
            path: "shm".into(),
            file: "/some/file".into(),
            bytes: 9,
            moving,
            results: vec![outcome],
        }
    }

    #[test]
    fn a_wrong_answer_is_a_failure_that_names_both() {
        assert!(report(7).verdict().is_ok());
        assert!(report(7).to_text(1).contains("all results equal"));
        let wrong = report(8);
        let failure = wrong.verdict().expect_err("8 is not 7").to_string();
        assert!(failure.contains("00000008") && failure.contains("00000007"), "{failure}");
        assert!(!wrong.to_text(1).contains("all results equal"));
    }

    #[test]
    fn the_json_is_the_object_that_programs_were_promised() {
        let expected = json!({
            "transport": "shm", "path": "shm", "file": "/some/file", "file_bytes": 9, "functions": [{
                "name": "crc32", "answer": "00000007", "expected": "00000007", "code_bytes": 472, "payload_bytes": 0,
                "first_call_us": 12.0, "link_us": 0.5, "later_call_us": 10.0, "fetch_instead_us": 7.0
            }]
        });
        assert_eq!(report(7).to_json(), expected);
    }
}
