//! A target elsewhere, under `farjump serve`, reached only by farjump's own means. The measured code counts
//! calls in a static of its own, and replies the count to a payload used for nothing else. Each run has code
//! of its own, new to the target, whose counter no other run shares.

use std::rc::Rc;
use std::time::{Duration, Instant};

use farjump::{Library, Link, Mode, WaitPolicy};

use super::ifuncs::{Libraries, Nonce};
use crate::perf::options::Perf;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::liveness::Watch;
use crate::perf::process::place;
use crate::perf::process::shared_memory::Memory;
use crate::perf::report::metric::{Against, Metric};
use crate::program::failure::Failure;
use crate::program::link_options;

/// The default port, that of the examples.
const PORT: u16 = 7471;
/// Reads the address of a target: as elsewhere, or HOST or HOST:PORT for one on TCP.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_address(text: &str) -> Result<String, String> {
    if text.starts_with("unix:") || text.starts_with("tcp:") {
        return link_options::parse_address(text);
    }
    // An IPv6 address contains colons, and stands in brackets.
    let (host, after) = match text.rfind(']') {
        Some(end) => text.split_at(end + 1),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or_default()) };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    match port {
        None if !host.is_empty() && !host.contains('/') => Ok(format!("tcp:{host}:{PORT}")),
        Some(port) if !host.is_empty() && is_port(port) => Ok(format!("tcp:{text}")),
        _ => Err(format!(
            "`{text}` is no target: write HOST, HOST:PORT (of an IPv6 address [ADDRESS]:PORT), tcp:HOST:PORT or unix:PATH"
        )),
    }
}

/// Refuses options that a run with a target elsewhere cannot have.
///
/// # Errors
/// A sentence for the user, if such an option is set.
pub(in crate::perf) fn check(arguments: &Perf) -> Result<(), Failure> {
    let metric = arguments.metric;
    if !matches!(metric, Metric::Latency | Metric::Rate | Metric::Bandwidth | Metric::FirstCall) {
        return Err(Failure::new(format!(
            "{} needs processes of perf's own at the target: leave --to out",
            metric.name()
        )));
    }
    let itself = [Against::Cached, Against::Clear];
    if let Some(baseline) = arguments.against.iter().find(|against| !itself.contains(against)) {
        let why = match baseline {
            Against::Memcpy => "copies within this machine alone",
            _ => "needs a process of perf's own at the target, and there is only `farjump serve`",
        };
        return Err(Failure::new(format!(
            "{} {why}: with --to farjump is held against nothing but cached and clear, leave it out",
            baseline.name()
        )));
    }
    Ok(())
}

/// The links to it.
pub(in crate::perf) struct Peer {
    links: Vec<Rc<Link>>,
    /// The functions called over each of them, each with its own counter.
    counters: Vec<Library>,
    nonce: Nonce,
    memory: Memory,
    watch: Watch,
}

/// A transport, and the reason why it does not reach the target.
pub(in crate::perf) struct Unreached {
    pub(in crate::perf) transport: String,
    pub(in crate::perf) why: String,
}

impl Peer {
    /// Connects to the target over each of the transports; if none is given, over the one that both processes
    /// prefer. With `--transports all` the target may lack some; those are returned.
    ///
    /// # Errors
    /// A transport requested by name does not reach it, or none does.
    pub(in crate::perf) fn connect(
        options: &Perf,
        transports: &[String],
        libraries: &Libraries,
    ) -> Result<(Peer, Vec<Unreached>), Failure> {
        let (Some(address), Some(nonce)) = (options.peer.as_deref(), libraries.nonce) else {
            return Err(Failure::new("no target elsewhere was named"));
        };
        let counters = libraries.codes.iter().map(|code| code.library.clone()).collect();
        let all = options.transports.iter().any(|name| name == "all");
        let (mut links, mut unreached) = (Vec::new(), Vec::new());
        let resolved = options.link.resolve()?;
        let connect = |transport: Option<&String>| {
            let mut config = resolved.config.clone();
            config.clear |= transport.is_some_and(|name| name == place::TCP_CLEAR);
            config.transport = transport.map(|name| place::backend(name).to_owned());
            (config.wait_policy, config.send_timeout) = (Some(WaitPolicy::spin_only()), PATIENCE);
            let clear = config.clear;
            let connected = Link::builder(address).config(config).connect();
            let link = connected.map_err(|error| resolved.failure(error))?;
            Ok::<_, Failure>(if clear { check_clear(link, address)? } else { link })
        };
        for transport in transports {
            match connect(Some(transport)) {
                Ok(link) => links.push(Rc::new(link)),
                Err(error) if all => unreached.push((transport.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        if transports.is_empty() {
            links.push(Rc::new(connect(None)?));
        }
        if links.is_empty()
            && let Some((_, error)) = unreached.pop()
        {
            return Err(error);
        }
        let unreached = unreached
            .into_iter()
            .map(|(transport, error)| Unreached { transport, why: error.to_string() })
            .collect();
        let memory = Memory::create(0, 0)?;
        let peer = Peer { links, counters, nonce, memory, watch: Watch::alone() };
        Ok((peer, unreached))
    }

    pub(in crate::perf) fn links(&self) -> &[Rc<Link>] {
        &self.links
    }

    pub(in crate::perf) fn endpoint(&self, link: usize, code: usize) -> usize {
        link * self.counters.len() + code
    }

    /// Measures a code over a link. Returns the result of `measure`, and the messages counted meanwhile.
    pub(in crate::perf) fn play<T>(
        &self,
        endpoint: usize,
        measure: impl FnOnce(&Memory, &Watch) -> Result<T, Failure>,
    ) -> Result<(T, u64), Failure> {
        let before = self.count(endpoint)?;
        let measured = measure(&self.memory, &self.watch)?;
        match self.count(endpoint)?.checked_sub(before) {
            Some(counted) => Ok((measured, counted)),
            None => Err(Failure::new(
                "the target began to count anew: it dropped perf's code in the middle of the run (serve --store-bytes, --store-images)",
            )),
        }
    }

    /// Returns the count of a function, from its reply.
    fn count(&self, endpoint: usize) -> Result<u64, Failure> {
        let (link, code) = (endpoint / self.counters.len(), endpoint % self.counters.len());
        let reply = self.link(link)?.inject(&self.counters[code], &self.nonce.request())?.wait(PATIENCE)?;
        let count = reply.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        count.ok_or_else(|| Failure::new("the target does not say how many messages it has counted"))
    }

    /// Returns the time of a function's first call from injecting it to its reply, or the target's refusal.
    pub(in crate::perf) fn time_first(
        &self,
        link: usize,
        library: &Library,
        mode: Mode,
        number: usize,
        args: &[u8],
    ) -> Result<Result<Duration, String>, Failure> {
        let link = self.link(link)?;
        link.set_mode(mode);
        let start = Instant::now();
        let replied = link.inject(library, args).and_then(|pending| pending.wait(PATIENCE));
        let time = start.elapsed();
        match replied {
            Ok(reply) if *reply == self.nonce.reply(number).to_le_bytes() => Ok(Ok(time)),
            Ok(_) => {
                Err(Failure::new("the reply to a first call is not that of its function: other code ran"))
            }
            Err(error @ farjump::Error::Call(farjump::CallError::Refused { .. })) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn link(&self, number: usize) -> Result<&Link, Failure> {
        let link = self.links.get(number);
        link.map(|link| &**link).ok_or_else(|| Failure::new("there is no such link to the target"))
    }
}

/// # Errors
/// Frames travel by `tcp` and are encrypted.
fn check_clear(link: Link, address: &str) -> Result<Link, Failure> {
    if link.transport() != place::TCP || place::name_of(&link) == place::TCP_CLEAR {
        return Ok(link);
    }
    Err(Failure::new(format!(
        "the target at {address} has frames of tcp sealed, so nothing clear can be measured: start it with \
         `farjump serve --clear`, or leave --clear and tcp-clear out"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_on_tcp_and_needs_no_port() {
        let read = |text| parse_address(text).map_err(|_| ());
        for (text, address) in [
            ("unix:a b/s", "unix:a b/s"),
            ("tcp:node7:1", "tcp:node7:1"),
            ("node7", "tcp:node7:7471"),
            ("node7:1", "tcp:node7:1"),
            ("10.0.0.1:1", "tcp:10.0.0.1:1"),
            ("[fe80::1]", "tcp:[fe80::1]:7471"),
            ("[fe80::1]:9", "tcp:[fe80::1]:9"),
        ] {
            assert_eq!(read(text), Ok(address.to_owned()), "{text}");
        }
        for wrong in
            ["", "[]x", ":1", "node7:", "node7:x", "node7:65536", "fe80::1", "[::1]x", "./store.sock"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
