//! `demo`: injects three functions into a process without their code, and checks their results.

mod child;
mod functions;
mod local;
mod progress;
mod report;
pub(crate) mod target;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use farjump::config::LinkConfig;
use farjump::transports::BackendOptions;
use farjump::{Library, Link};

use child::DemoTarget;
use farjump_cli::program::bundled_ifuncs::{self, Source};
use farjump_cli::program::config_arguments::ConfigArguments;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::{QueryOptions, choose_device, parse_address};
use farjump_cli::program::output;
use farjump_cli::program::units::median;
use farjump_cli::program::workspace::Stage;
use functions::Function;
use local::LocalFunction;
use progress::Progress;
use report::{Outcome, Report, show_length};

/// Bounds on the later calls of a function, in number and in time. The first one reached ends them.
const LATER_CALLS: (usize, Duration) = (101, Duration::from_millis(100));
/// The same bounds for rounds of moving the file to this process and computing a function there.
const INSTEAD: (usize, Duration) = (3, Duration::from_millis(300));
/// Bytes at the file's start that are searched for a literal for grep.
const START: u64 = 1 << 20;
/// Longest delay of the target's report of its linking after the reply.
const REPORT_DELAY: Duration = Duration::from_millis(20);

/// See it work: three functions run in a process that has never seen them
///
/// Starts a target that maps FILE, and injects histogram, grep and crc32. Then moves FILE to this process
/// instead, runs the same code on it, and compares the results. Needs a C compiler and no privileges. FILE may
/// be larger than memory. No file is left behind.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Columns:
  sent           bytes of code and of payload of the first call; later calls send no code
  first call     from injecting to the reply, and the part of it that the target took to link the code
  later          the same without code, median
  moving the file instead
                 time to get FILE's bytes from the target over a Unix socket and to run the
                 same code on them here, part by part; and the running time in it

Examples:
  farjump demo
  farjump demo --transport verbs-write --device mlx5_0:1   # both processes use the RDMA device

Ends with 1 if a result is wrong.")]
pub(crate) struct Demo {
    /// The file that the target maps [default: this program]
    pub(crate) file: Option<PathBuf>,
    /// The literal that grep counts [default: a literal that occurs in FILE]
    #[arg(long, value_name = "STR")]
    pub(crate) literal: Option<OsString>,
    /// Take libhistogram.so, libgrep.so and libcrc32.so from this folder: for a machine without a C compiler
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// The target's address, such as tcp:127.0.0.1:0 [default: a Unix socket]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) listen: Option<String>,
    /// Command that starts the target on this machine, such as "ip netns exec far" for another network. Split
    /// at blanks, without quotes
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launch: Option<String>,
    #[command(flatten)]
    link: ConfigArguments<LinkConfig, QueryOptions>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Demo) -> Result<(), Failure> {
    let mut options = arguments.link.resolve()?;
    choose_device(&options)?;
    let file = match &arguments.file {
        Some(file) => file.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find this program's own file: {error}")))?,
    };
    if let Some(transport) = &options.config.transport {
        // Checked here too: a target that cannot start sends its error as a text, without the kind.
        let backends = BackendOptions::new().with_ucx_tcp(options.config.ucx_tcp);
        let made = farjump_transports::make_all(transport, backends).map_err(farjump::Error::from);
        made.map_err(|error| options.failure(error))?;
    }
    let start = start_of(&file)?;
    let functions = functions::all(functions::literal(arguments.literal.as_deref(), &start));

    let stage = Stage::set("demo")?;
    let progress = Progress::new();
    let sources = functions.each_ref().map(|function| Source { name: function.name, text: function.source });
    progress.step("building the functions");
    let libraries = match &arguments.libraries {
        // SAFETY: the user names the folder (`--libraries`) with the libraries to run.
        Some(folder) => unsafe { bundled_ifuncs::open(&sources, folder) }?,
        // SAFETY: `sources` are samples of farjump, whose payload routines only fill in payloads.
        None => unsafe { bundled_ifuncs::build(&sources, &stage) }?,
    };
    progress.step("starting the target");
    let mut target = child::start(&stage, &file, arguments, &options.config)?;
    let limit = call_limit(target.file_len());
    options.config.send_timeout = limit;
    let connected = Link::builder(target.address()).config(options.config.clone()).connect();
    let link = connected.map_err(|error| options.failure(error))?;
    let path = link.path();
    let mut report = Report {
        pid: target.pid(),
        path: path.summary(),
        transport: path.transport,
        file,
        bytes: target.file_len(),
        results: Vec::new(),
    };
    if !arguments.json {
        progress.print(report.head(target.pid()))?;
    }
    for (function, library) in functions.iter().zip(&libraries) {
        let outcome = measure(function, library, &link, limit, &mut target, &progress)?;
        if !arguments.json {
            progress.print(report.row(&outcome))?;
        }
        report.results.push(outcome);
    }
    drop(progress);
    if arguments.json {
        output::print_line(format_args!("{:#}", report.to_json()))?;
    }
    report.verdict()?;
    if !arguments.json {
        output::print_line("all results equal those of the same code on the moved file.")?;
    }
    Ok(())
}

/// Returns the first bytes of a file that the target can map.
fn start_of(file: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error: io::Error| Failure::new(format!("cannot read `{}`: {error}", file.display()));
    // Checked before opening: opening a pipe would wait for a writer.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(Failure::new(format!(
            "`{}` is no regular file: the target cannot map it",
            file.display()
        )));
    }
    let mut start = Vec::new();
    File::open(file).and_then(|file| file.take(START).read_to_end(&mut start)).map_err(unreadable)?;
    Ok(start)
}

/// Returns the time limit of a call: far more than any machine needs for a file of this length.
fn call_limit(bytes: u64) -> Duration {
    Duration::from_secs(30 + bytes / 10_000_000)
}

/// Injects a function, and runs it here on the moved file.
fn measure(
    function: &Function,
    library: &Library,
    link: &Link,
    limit: Duration,
    target: &mut DemoTarget,
    progress: &Progress,
) -> Result<Outcome, Failure> {
    let name = function.name;
    let call = || -> Result<_, Failure> {
        let start = Instant::now();
        let reply = link.inject(library, &function.args)?.wait(limit)?;
        let time = start.elapsed();
        Ok((time, function.result(&reply)?))
    };
    let len = target.file_len();
    progress.step(format!("{name} runs in the target, on {}", show_length(len)));
    let before = link.stats();
    let (first_call, result) = call()?;
    let after = link.stats();
    if after.frames_with_code != before.frames_with_code + 1 {
        return Err(Failure::new(format!("the target knew `{name}` before it was injected")));
    }
    let linking = link.link_time(library, REPORT_DELAY)?;
    let later_calls = repeated(LATER_CALLS, || {
        let (time, again) = call()?;
        match again == result {
            true => Ok(time),
            false => Err(Failure::new(format!("`{name}` replied {result}, then {again}"))),
        }
    })?;
    let mut local = LocalFunction::new(function, library)?;
    let rounds = repeated(INSTEAD, || {
        progress.bytes(format!("moving the file instead, for {name}"), len);
        local.compute_moved(target, |bytes| progress.advance(bytes))
    })?;
    let median_of = |times: Vec<Duration>| median(times).unwrap_or_default();
    Ok(Outcome {
        name,
        instead: median_of(rounds.iter().map(|round| round.time).collect()),
        compute: median_of(rounds.iter().map(|round| round.computing).collect()),
        expected: rounds.into_iter().next_back().map_or_else(|| result.clone(), |round| round.result),
        result,
        code_bytes: after.code_bytes - before.code_bytes,
        payload_bytes: after.payload_bytes - before.payload_bytes,
        first_call,
        link: linking.unwrap_or_default(),
        later_call: median_of(later_calls),
    })
}

/// Calls `turn` once, and again until one of the bounds is reached.
fn repeated<T>(
    (most, limit): (usize, Duration),
    mut turn: impl FnMut() -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let start = Instant::now();
    let mut turns = vec![turn()?];
    while turns.len() < most && start.elapsed() < limit {
        turns.push(turn()?);
    }
    Ok(turns)
}
