//! `inject`: the function of a library, run in a target.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use farjump::{Link, LinkStats, Mode, PeerIdentity};
use serde_json::{Value, json};

use crate::arguments::Inject;
use crate::failure::Failure;
use crate::output;
use crate::path;
use crate::quantity::{median, microseconds, show_count, show_duration};
use crate::routines;

/// How long the target's report of its linking may be behind the reply.
const REPORT_DELAY: Duration = Duration::from_millis(20);

/// Injects.
pub(crate) fn run(arguments: &Inject) -> Result<(), Failure> {
    let library = routines::open(&arguments.library)?;
    let args = source_args(arguments)?;
    let mut builder = Link::builder(&arguments.to)
        .mode(arguments.mode)
        .ucx_tcp(arguments.ucx.tcp)
        .clear(arguments.clear.clear)
        .connect_timeout(arguments.timeout)
        .send_timeout(arguments.timeout);
    if let Some(transport) = &arguments.transport {
        builder = builder.transport(transport);
    }
    if let Some(key) = arguments.key.read([arguments.to.as_str()])? {
        builder = builder.key(key);
    }
    if let Some(time) = arguments.peer_timeout.time {
        builder = builder.peer_timeout(time);
    }
    let link = builder.connect()?;
    if arguments.verbose {
        let (peer, largest) = (link.peer().to_string(), link.max_frame());
        output::note(path::as_text(&link.path(), &peer, largest, link.rights()).trim_end());
    }
    let call = |reply: &mut Vec<u8>| -> Result<Duration, Failure> {
        reply.clear();
        let start = Instant::now();
        link.call_into(&library, &args, arguments.timeout, reply)?;
        Ok(start.elapsed())
    };
    let mut reply = Vec::new();
    let first_call = call(&mut reply)?;
    let later_calls = (1..arguments.repeat).map(|_| call(&mut reply)).collect::<Result<Vec<_>, _>>()?;
    output::print(&reply)?;
    let figures = Figures {
        mode: arguments.mode,
        path: link.path().summary(),
        transport: link.transport(),
        rule: link.rule().describe(),
        target: link.peer(),
        sent: link.stats(),
        reply: reply.len(),
        first_call,
        // A target that ends now has answered: the figure is missing, nothing else.
        link: link.link_time(&library, REPORT_DELAY).unwrap_or_default(),
        later_calls: later_calls.len(),
        later_call: median(later_calls),
    };
    if arguments.json {
        output::note(figures.to_json());
    } else {
        output::note(figures.to_text());
    }
    Ok(())
}

/// The bytes that the payload routines get.
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

/// What a run took.
struct Figures {
    mode: Mode,
    /// The transport, and whether frames are sealed on it.
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
}

impl Figures {
    fn to_text(&self) -> String {
        let Figures { path, rule, target, sent, first_call, .. } = self;
        let plural = if sent.frames == 1 { "" } else { "s" };
        let mut text = format!(
            "{} frame{plural} to {target} by {path} ({rule}): {} B of code, {} B of payload\nfirst call {}",
            show_count(sent.frames),
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
        text
    }

    fn to_json(&self) -> Value {
        json!({
            "mode": self.mode.name(),
            "transport": self.transport,
            "path": self.path,
            "arrives_by": self.rule,
            "target_pid": self.target.pid,
            "frames": self.sent.frames,
            "frames_with_code": self.sent.frames_with_code,
            "code_bytes": self.sent.code_bytes,
            "payload_bytes": self.sent.payload_bytes,
            "reply_bytes": self.reply,
            "first_call_us": microseconds(self.first_call),
            "link_us": self.link.map(microseconds),
            "later_calls": self.later_calls,
            "later_call_us": self.later_call.map(microseconds),
        })
    }
}
