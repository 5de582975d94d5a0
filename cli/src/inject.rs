//! `inject`: runs the function of a library in a target.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use farjump::config::LinkConfig;
use farjump::error::{ConnectError, ConnectionError, ControlOperation, ControlSystemError, HandshakeError};
use farjump::{CallError, CodeId, Error, Library, Link, LinkStats, Mode, PeerIdentity};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::reply_format::Format;
use crate::transports::link_path::{self, LinkReport};
use farjump_cli::program::config_arguments::{ConfigArguments, Resolved};
use farjump_cli::program::failure::{Exit, Failure};
use farjump_cli::program::link_options::parse_address;
use farjump_cli::program::output;
use farjump_cli::program::routines;
use farjump_cli::program::units::{counted, median, microseconds, parse_duration, show_count, show_duration};

/// Longest delay of the target's report of its linking after the reply.
const REPORT_DELAY: Duration = Duration::from_millis(20);

/// Shortest and longest pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Run the function of a library in a target
///
/// The reply goes to standard output (with --repeat, that of the last call): unchanged, to a terminal as a hex
/// dump, or as --format says. Statistics go to standard error.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Statistics: frames sent, bytes of code and payload in them, the time of the first call from injecting to the reply, the
part of it that the target took to link the code, and the median of the later calls. They name the transport and, for
tcp, whether frames were sealed and by which cipher; -v also shows the output of `farjump transports --to`.

Examples:
  farjump inject libgrep.so --to unix:store.sock --args panic --format u64
  farjump inject libsum.so --to unix:store.sock --args-file row.bin --repeat 1000 --json
  farjump inject libsum.so --to tcp:node7:7471 --key-file farm.key
  farjump inject libsum.so --to unix:store.sock --repeat 100000 --compile-for-peer --cc clang
  farjump inject libsum.so --to tcp:node7:7471 --key-file farm.key --transport verbs-write --device mlx5_0:1
  farjump inject libsum.so --to tcp:node7:7471 --key-file farm.key --wait 2m   # node7 boots
  echo -n you | farjump inject libhello.so --to unix:store.sock --args-file - --format u64")]
pub(crate) struct Inject {
    /// The library. It is only read, unless it has payload routines of its own, which then run in this
    /// process (farjump inspect)
    #[arg(value_name = "LIB.so")]
    pub(crate) library: PathBuf,
    /// The target: unix:PATH, unix:@NAME or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) to: String,
    /// The source_args of the library's payload routines [default: no bytes]
    #[arg(long, value_name = "STR", conflicts_with = "args_file", allow_hyphen_values = true)]
    pub(crate) args: Option<OsString>,
    /// As --args, from a file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) args_file: Option<PathBuf>,
    /// The form of the reply: raw, hex, text (with escapes for characters that a terminal would not show), or
    /// little-endian numbers, one a line: u8, u16, u32, u64, i8, i16, i32, i64, f32, f64 [default: raw, on a terminal
    /// hex]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Number of calls, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) repeat: u32,
    /// Time to wait for a target to listen, such as 10s, even while its machine does not respond or the name of its
    /// host is unknown. An attempt to connect takes no longer than its limit or the rest of this time [default: fail at
    /// once]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Time limit for connecting and for each call, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) link: ConfigArguments<LinkConfig>,
    /// Also show the path to the target: transport, encryption, and the reasons against other paths
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Print the statistics as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Inject) -> Result<(), Failure> {
    let options = link_options(arguments)?;
    // SAFETY: the user names the library (`arguments.library`), and trusts its routines to run here.
    let library = unsafe { routines::open(&arguments.library) }?;
    let args = source_args(arguments)?;
    let link = connect(arguments, &options)?;
    if arguments.verbose {
        output::note(link_path::as_text(&LinkReport::of(&link)).trim_end());
    }
    let call = |reply: &mut Vec<u8>| -> Result<Duration, Error> {
        reply.clear();
        let start = Instant::now();
        link.call_into(&library, &args, arguments.timeout, reply)?;
        Ok(start.elapsed())
    };
    let mut reply = Vec::new();
    let at_terminal = io::stdout().is_terminal();
    let format = arguments.format.unwrap_or(if at_terminal { Format::Hex } else { Format::Raw });
    let times = (0..arguments.repeat.max(1)).map(|_| call(&mut reply)).collect::<Result<Vec<_>, _>>();
    let times = times.map_err(|error| {
        // Prints the replies that came, so that they are not lost with the rest.
        if let Error::Call(CallError::Incomplete(incomplete)) = &error
            && let Err(unprinted) = output::print(format.show(&incomplete.replies).0)
        {
            return unprinted;
        }
        error.into()
    })?;
    let (first_call, later_calls) = (times[0], times[1..].to_vec());
    let (shown, rest) = format.show(&reply);
    output::print(shown)?;
    let figures = Figures {
        mode: options.config.mode,
        path: link.path().summary(),
        transport: link.transport(),
        rule: link.arrival_rule().describe(),
        target: link.peer(),
        sent: link.stats(),
        reply: reply.len(),
        first_call,
        // The reply has come even if the target ends now; then only this figure is missing.
        link: link.link_time(&library, REPORT_DELAY).unwrap_or_default(),
        later_calls: later_calls.len(),
        later_call: median(later_calls),
        compiled: compiled_image(&options.config, &link, &library),
    };
    if arguments.json {
        output::note(figures.to_json());
    } else {
        output::note(figures.to_text());
    }
    if rest.is_empty() {
        return Ok(());
    }
    let bytes: String = rest.iter().map(|byte| format!(" {byte:02x}")).collect();
    Err(Failure::new(format!(
        "the reply has {}, which is no whole number of {}: at its end remain{bytes}; choose another --format, such as hex",
        counted(reply.len() as u64, "byte"),
        format.name()
    )))
}

/// Connects to the target. With `--wait`, waits until one listens.
fn connect(arguments: &Inject, options: &Resolved<LinkConfig>) -> Result<Link, Failure> {
    let builder = || Link::builder(&arguments.to).config(options.config.clone());
    let at_once = || builder().connect().map_err(|error| options.failure(error));
    let Some(wait) = arguments.wait else { return at_once() };
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let limit = wait.saturating_sub(begun.elapsed()).min(options.config.connect_timeout);
        let error = match builder().connect_timeout(limit).connect() {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        if let Error::Connect(ConnectError::Handshake(HandshakeError::TimedOut { .. })) = error
            && limit < options.config.connect_timeout
        {
            // A target listens, but the wait left too little time to connect.
            return at_once();
        }
        let (may_come, failure) = (is_unreachable(&error), options.failure(error));
        if !(may_come || failure.exit() == Exit::NoTarget) || wait.saturating_sub(begun.elapsed()) <= pause {
            return Err(failure);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns whether the target's machine does not answer, or its host is unknown, as while it boots.
fn is_unreachable(error: &Error) -> bool {
    let Error::Connect(ConnectError::Connection(error)) = error else { return false };
    match error {
        ConnectionError::TimedOut { .. } => true,
        ConnectionError::System(ControlSystemError { operation, source, .. }) => match operation {
            // A resolver's own errors have no number of the system.
            ControlOperation::Resolve => source.raw_os_error().is_none(),
            ControlOperation::Connect => matches!(
                Errno::from_io_error(source),
                Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN)
            ),
            _ => false,
        },
        _ => false,
    }
}

/// Returns the options of the link.
fn link_options(arguments: &Inject) -> Result<Resolved<LinkConfig>, Failure> {
    let mut options = arguments.link.resolve()?;
    (options.config.connect_timeout, options.config.send_timeout) = (arguments.timeout, arguments.timeout);
    Ok(options)
}

/// Returns the state of the image for the target's CPU, if the options want such an image.
#[cfg(feature = "build")]
fn compiled_image(options: &LinkConfig, link: &Link, library: &Library) -> Option<Compiled> {
    use farjump::CompiledImage::{InUse, Kept, NotRequested};
    options.compile_for_peer.then(|| match link.compiled_image(library) {
        InUse(id) => Compiled { state: "in use", id: Some(id), reason: None },
        Kept(cause) => Compiled { state: "kept", id: None, reason: Some(cause.to_string()) },
        NotRequested => {
            let reason = format!("calls in mode {} send the library's image", options.mode);
            Compiled { state: "kept", id: None, reason: Some(reason) }
        }
        _ => {
            let reason = "the calls ended before the target had the compiled image".to_owned();
            Compiled { state: "compiling", id: None, reason: Some(reason) }
        }
    })
}

/// Returns nothing: this program has no builder.
#[cfg(not(feature = "build"))]
fn compiled_image(_: &LinkConfig, _: &Link, _: &Library) -> Option<Compiled> {
    None
}

/// The image for the target's CPU.
struct Compiled {
    /// `in use`, `kept` or `compiling`.
    state: &'static str,
    /// The id of the image in use.
    id: Option<CodeId>,
    /// The reason why it is not in use.
    reason: Option<String>,
}

/// Returns the arguments of the payload routines.
fn source_args(arguments: &Inject) -> Result<Vec<u8>, Failure> {
    let Some(file) = &arguments.args_file else {
        return Ok(arguments.args.as_deref().unwrap_or_default().as_bytes().to_vec());
    };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    read.map_err(|error| {
        Failure::new(format!("cannot read the arguments from `{}`: {error}", file.display()))
    })
}

/// The times of a run.
struct Figures {
    mode: Mode,
    /// The transport, and whether its frames are encrypted.
    path: String,
    transport: String,
    rule: String,
    target: PeerIdentity,
    sent: LinkStats,
    reply: usize,
    first_call: Duration,
    /// `None` if the target had the code.
    link: Option<Duration>,
    later_calls: usize,
    later_call: Option<Duration>,
    /// `None` if the options want no such image.
    compiled: Option<Compiled>,
}

impl Figures {
    fn to_text(&self) -> String {
        let Figures { path, rule, target, sent, first_call, .. } = self;
        let mut text = format!(
            "{} to {target} by {path} ({rule}): {} B of code, {} B of payload\nfirst call {}",
            counted(sent.frames, "frame"),
            show_count(sent.code_bytes),
            show_count(sent.payload_bytes),
            show_duration(*first_call)
        );
        match self.link {
            Some(time) => text += &format!(", of which {} linking", show_duration(time)),
            None => text += ", the target had the code already",
        }
        if let Some(time) = self.later_call {
            text += &format!("; later calls {} (median of {})", show_duration(time), self.later_calls);
        }
        if let Some(Compiled { id, reason, .. }) = &self.compiled {
            text += "\nimage for the target's CPU: ";
            match (id, reason) {
                (Some(id), _) => text += &format!("{id} in use"),
                (None, reason) => {
                    text += &format!("not used, {}", reason.as_deref().unwrap_or_default());
                }
            }
        }
        text
    }

    fn to_json(&self) -> Value {
        let mut figures = json!({
            "mode": self.mode.name(),
            "transport": self.transport,
            "path": self.path,
            "arrives_by": self.rule,
            "pid": self.target.pid,
            "frames": self.sent.frames,
            "frames_with_code": self.sent.frames_with_code,
            "code_bytes": self.sent.code_bytes,
            "payload_bytes": self.sent.payload_bytes,
            "reply_bytes": self.reply,
            "first_call_us": microseconds(self.first_call),
            "link_us": self.link.map(microseconds),
            "later_calls": self.later_calls,
            "later_call_us": self.later_call.map(microseconds),
        });
        if let Some(Compiled { state, id, reason }) = &self.compiled {
            figures["compiled"] = json!({
                "state": state,
                "id": id.map(|id| id.to_string()),
                "reason": reason,
            });
        }
        figures
    }
}
