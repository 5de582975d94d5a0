//! The command line of `perf`.

pub(super) mod ifuncs;
pub(super) mod image;
pub(super) mod remote_target;

use std::path::PathBuf;

use clap::Args;
use farjump::Mode;
use farjump::config::LinkConfig;

use super::machine::{RequestedCpus, parse_cpus};
use crate::perf::experiments::baselines::ring::parse_slot;
use crate::perf::experiments::chase::options::ChaseOptions;
use crate::perf::experiments::scaling::source_count::{Active, Counts, parse_active, parse_counts};
use crate::perf::experiments::work::{Functions, parse_functions};
use crate::perf::options::image::parse_images;
use crate::perf::options::remote_target::parse_address;
use crate::perf::process::network_namespaces::{Across, parse_across};
use crate::perf::process::place;
use crate::perf::report::metric::{Against, Metric};
use crate::perf::report::payload_size::{Sizes, parse_sizes};
use crate::perf::report::picture_file::{PictureFile, parse_picture_file};
use crate::program::config_arguments::ConfigArguments;
use crate::program::failure::Failure;
use crate::program::link_options::PathOptions;
use crate::program::units::parse_bytes;

/// The variable that names transports.
pub(super) const TRANSPORTS: &str = "FARJUMP_TRANSPORT";

/// Shortest and longest ring in bytes.
const RINGS: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// Reads the length of a ring in bytes.
fn parse_ring(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if RINGS.contains(&bytes) => Ok(bytes),
        _ => Err("a ring has 4K to 1G".to_owned()),
    }
}

/// Measure farjump on this machine or to another, beside the alternatives
///
/// Starts a target in a second process, each of the two on a processor of its own, and calls `counter`, a function that
/// adds one to a number. Each round measures farjump over each transport and in each mode, then each baseline, one
/// right after the other, so that drift of the machine affects all alike. Ratios are taken within a round. Requires a C
/// compiler. Leaves no file behind.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Metrics:
  latency     us one way, from injecting to the function's end: half of a timed round trip, with an
              empty reply, as in ucx_perftest. Payloads over 40 bytes go one way only: half of a
              round trip without payload, measured just before, is subtracted from theirs.
              Baselines reply the same way
  rate        million messages a second, from the first sent to the last run
  bandwidth   the same in MB/s of payload (1 MB is 1048576 bytes, as for ucx_perftest)
  first-call  us at the target, from the arrival of code that it has never seen to its return;
              cold, or with --warm right after other code that it had not seen
  work        us from having the arguments at the source to having the result there, or at the
              target for functions that write; of functions with work to do (--functions)
  scaling     one way, rate, and one way of a source that was idle, with 1, 2, 4 … 256 sources
              connected to one target; beside a target of its own with one source
  wake-up     us from injecting into a target that has slept for 5 ms to the start of the function
  idle        ms of processor time a second that a target takes while nothing comes
  tsi         one way and rate of native code and of bitcode that the target has compiled, each with the code
              at the target and with the code in each message, beside ucx-am; bytes of their frames;
              and the parts of a first call: arrival, fork, parse, compile, link, place, run
  chase       us of a chase through a permutation that lies in the tables of several shards, each a
              target: the function reads while the next word is in this shard, and forwards itself to
              the shard that has it; beside gets of each word. A wire is modelled (--wire): each
              message counts as arrived its latency after it was sent. Without a wire, in one machine,
              a get is a load, and faster

Baselines:
  raw         memory of two processes: bytes copied, the signal last, and the same back
  memcpy      one process that copies as many bytes into such memory and signals no process
  stream      a TCP stream: as many bytes as transport tcp-clear puts there, by the same system
              calls; for tcp stream-sealed, with the same AEAD and records
  ucx-am      UCX's active messages (ucp_am_send_nbx); their handler counts
  ucx-am-tcp  the same over TCP alone, whose port is open on loopback while perf runs
  ucx-stores  as raw, in memory of UCX, through ucp_rkey_ptr
  ucx-put     the same by ucp_put_nbx, ucp_worker_fence, and ucp_put_nbx of the signal
  perftest    ucx_perftest: a row of its own says whether ucx-am is within 15 % of it
  dlopen      dlopen, dlsym and one call of the same library; for first-call, and there alone
  cached      farjump itself in mode cached, for the other modes
  clear       farjump itself over tcp-clear, for tcp
  single      farjump itself without --batch
  iceoryx2    publish and subscribe of iceoryx2, polled; in builds with --features iceoryx2
  ib_write_lat, ib_send_lat, ib_write_bw
              perftest's programs over the RDMA device, port and GID that farjump uses
For work, ucx-am's handler does the same work by the same code, and
  fetch       without code at the target: the source gets its data and puts the result there, by
              ucp_get_nbx and ucp_put_nbx
  raw-fetch   the same in memory that both have mapped
  fetch-am    the same by UCX's active messages, with which the target sends the data; for
              --resident, and there alone
  alone       a target with one source; for scaling, and there alone
  ucx-get     ucp_get_nbx of each word; for chase, and there alone
  load        a load of each word from memory that is mapped; likewise
  futex       a process that sleeps in FUTEX_WAIT; for wake-up and idle, and there alone
  ucx-wait    one that sleeps until UCX's active message comes (ucp_worker_arm and epoll); likewise
Transport tcp is sealed here, by a key that is drawn for the run. It goes over loopback or, with
--across, between two network namespaces. tcp-clear is the same with nothing sealed.
UCX takes its transport from UCX_TLS, as everywhere, and is the system's unless --ucx names
another libucp.so.0; its version is in the second line. perf reports missing baselines, and
measures all else.

A row has the medians over the rounds, and the median of the rounds' ratios (farjump's figure by
the baseline's) with the smallest and the largest. Percentiles are of single calls, each with
the 20 ns or so of reading the clock. The state says how long a line takes from one processor
to the other: near (less than 40 ns), middle, far (more than 150 ns). Ratios of different states
cannot be compared.

With --to, perf measures to a target that runs elsewhere, over any transport that reaches it:
  farjump serve --listen tcp:0.0.0.0:7471 --key-file farm.key --wait-policy always   # on node7
  farjump perf latency --to node7 --key-file farm.key
First calls to it are timed from injecting to the reply, because nothing at the target times them.
If both processes have --clear, frames of tcp are clear, and rows say tcp-clear. To a target that
serves --clear, --transports tcp,tcp-clear --against clear measures both.

Examples:
  farjump perf latency
  farjump perf latency --sizes 1..1M --transports all --against ucx-am,perftest
  farjump perf rate --sizes 8,32 --batch 64 --against raw,ucx-am
  UCX_TLS=tcp farjump perf rate --transports tcp --against ucx-am --sizes 8
  farjump perf latency --image 64..64K --mode always,in-place
  farjump perf work --functions sum,codec --sizes 64..1M --against ucx-am,fetch
  farjump perf work --resident --functions column,list --sizes 4K,1M
  farjump perf rate --sizes 1..1M --transports all --against ucx-am --plot rate.svg
  farjump perf chase --shards 8 --depth 64,1024 --wire 0,1us,10us --outstanding 1
  farjump perf bandwidth --sizes 64K,1M --json | jq '.rows[] | [.size, .median, .ratio]'
  farjump perf rate --sizes 1 --ring 1G --slot 1K --against ucx-put,ucx-am   # the paper's ring

docs/reference/perf.md lists the output of --json and --csv.")]
pub struct Perf {
    /// The metric to measure
    #[arg(value_name = "METRIC")]
    pub(super) metric: Metric,
    /// Transports, separated by commas; `all` are those usable here [default: the one that a link would take]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = place::parse_transport)]
    pub(super) transports: Vec<String>,
    /// Bytes of payload, or of data with --resident: numbers and ranges. In a range each number is twice the previous
    /// one [default with --resident: 4K,64K,1M,16M,256M]
    #[arg(long, value_name = "N,A..B,…", value_parser = parse_sizes, default_value = "8",
        default_value_if("resident", "true", "4K,64K,1M,16M,256M"))]
    pub(super) sizes: Sizes,
    /// The modes to measure: cached, always, local, in-place [default: cached; with
    /// --resident and for chase cached,always]
    #[arg(long = "mode", value_name = "MODE,…", value_delimiter = ',', default_values_t = [Mode::Cached],
        default_value_ifs([("resident", "true", "cached,always"), ("metric", "chase", "cached,always")]))]
    pub(super) modes: Vec<Mode>,
    /// The baselines [default: raw; for bandwidth memcpy, for first-call dlopen, for work ucx-am, for
    /// --resident all of its own, for wake-up and idle futex, for chase ucx-am,
    /// ucx-get,load, for --image cached; over verbs ib_write_lat,
    /// ib_send_lat and ib_write_bw where they are installed]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) against: Vec<Against>,
    /// Number of rounds, each over all cases
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    /// Calls in each measurement [default: 10000, for rate and bandwidth 200000, for wake-up 100; fewer for
    /// payloads over 1K]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) iterations: Option<u32>,
    /// Calls before each measurement that do not count
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    pub(super) warmup: u32,
    /// The processors of source and target, with --to that of the source. `any` leaves them to the system. It measures
    /// farjump alone, for latency, rate and bandwidth. Both processes then wait as other programs do. The output says
    /// whether they shared a processor [default: two allowed ones, of different cores if possible]
    #[arg(long, value_name = "A,B", value_parser = parse_cpus)]
    pub(super) cpus: Option<RequestedCpus>,
    /// Length of the target's mailbox, and of the baselines' rings [default: 4M; for scaling and chase 16K a source]
    #[arg(long, value_name = "BYTES", value_parser = parse_ring)]
    pub(super) ring: Option<usize>,
    /// Messages handed to farjump at a time, to share frames (Link::batch); for rate and bandwidth
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) batch: u32,
    /// Bytes of the image of `counter`, written as for --sizes; padding behind its code never runs [default:
    /// its own]
    #[arg(long, value_name = "N,A..B,…", value_parser = parse_images)]
    pub(super) image: Option<Sizes>,
    /// Work on data of 4K to 256M that lie at the target, instead of data in the message. Injected functions and
    /// handlers of messages work there; the source fetches the data and works on it here. Results are as measured, and
    /// with the time of a modelled network added; for work
    #[arg(long, conflicts_with_all = ["peer", "image"])]
    pub(super) resident: bool,
    /// The functions that work: sum, indirect-put, histogram, codec, all; with --resident column, filter,
    /// nearest, top-k, list, all [default: all]
    #[arg(long, value_name = "NAME,…", value_parser = parse_functions)]
    pub(super) functions: Option<Functions>,
    /// Bytes from one message to the next in the rings of raw, ucx-stores and ucx-put, for latency, rate and
    /// bandwidth [default: the length of a message]
    #[arg(long, value_name = "BYTES", value_parser = parse_slot)]
    pub(super) slot: Option<usize>,
    /// Let the target sleep as soon as it is idle, as under `farjump serve --wait-policy never`, instead of polling all the
    /// time: for devices in software that require the processor; for latency, rate and bandwidth
    #[arg(long, conflicts_with = "peer")]
    pub(super) target_sleeps: bool,
    /// Measure calls of new code one right after another, and libraries loaded one right after another, so that
    /// code and tables of both are in the caches [default: one of each, cold]; for first-call
    #[arg(long)]
    pub(super) warm: bool,
    /// Measure to a running target of `farjump serve`, without baselines but cached and clear: HOST,
    /// HOST:PORT [port: 7471], tcp:HOST:PORT or unix:PATH; for latency, rate, bandwidth and first-call
    #[arg(long = "to", value_name = "ADDRESS", value_parser = parse_address, conflicts_with_all = ["ring", "slot"])]
    pub(super) peer: Option<String>,
    // For targets elsewhere. All processes of perf use the device.
    #[command(flatten)]
    pub(super) link: ConfigArguments<LinkConfig, PathOptions>,
    /// The file libucp.so.0 of the UCX to measure with: baselines over UCX, and farjump's own transports
    /// over it, in all processes [default: FARJUMP_UCX, else the system's]
    #[arg(long = "ucx", value_name = "FILE")]
    pub(super) ucx_library: Option<PathBuf>,
    /// The library of `counter`, built before by `farjump build ifuncs/samples/c/counter.c -o LIB.so`, for
    /// machines without a C compiler; not for first-call and work, whose functions differ from run to run
    #[arg(long, value_name = "LIB.so", conflicts_with_all = ["peer", "image"])]
    pub(super) counter: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print the rows as CSV
    #[arg(long)]
    pub(super) csv: bool,
    /// For scaling, wake-up and idle: numbers of connected sources, written as for --sizes [default: 1..256; for
    /// wake-up 1; for idle 1,64]
    #[arg(long, value_name = "N,A..B,…", value_parser = parse_counts)]
    pub(super) sources: Option<Counts>,
    /// For scaling: maximum number of sources that send; the others are idle
    #[arg(long, value_name = "N|all", default_value = "all", value_parser = parse_active)]
    pub(super) active: Active,
    /// For idle: seconds that a target is left alone in each round
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) seconds: u32,
    /// Put the target into another network namespace, a name of `ip netns` or a file, and reach it at this
    /// address there, for example right,10.77.0.2. Raw baselines and transport tcp go there
    #[arg(long, value_name = "NETNS,ADDRESS", value_parser = parse_across, conflicts_with = "peer")]
    pub(super) across: Option<Across>,
    #[command(flatten)]
    pub(super) chase: ChaseOptions,
    /// Draw the figures and their ratios, as SVG or PNG by the file's ending
    #[arg(long, value_name = "FILE", value_parser = parse_picture_file)]
    pub(super) plot: Option<PictureFile>,
}

impl Perf {
    /// Returns whether the system chooses the processors.
    pub(super) fn is_unpinned(&self) -> bool {
        self.cpus == Some(RequestedCpus::Any)
    }

    /// Takes the transports that the environment names, if the command line names none. Returns the variable and its
    /// value then.
    ///
    /// # Errors
    /// The variable has another name than those of transports.
    pub(super) fn take_variable(&mut self) -> Result<Option<String>, Failure> {
        let names = std::env::var(TRANSPORTS).unwrap_or_default();
        if !self.transports.is_empty() || names.is_empty() {
            return Ok(None);
        }
        let parsed: Result<_, _> = names.split(',').map(place::parse_transport).collect();
        self.transports =
            parsed.map_err(|why| Failure::usage(format!("the variable {TRANSPORTS}: {why}")))?;
        Ok(Some(format!("{TRANSPORTS}={names}")))
    }

    /// Returns the library of the UCX to measure with, if one was named.
    #[cfg(feature = "ucx")]
    pub fn ucx_library(&self) -> Option<&std::path::Path> {
        self.ucx_library.as_deref()
    }

    /// Returns the length of mailboxes and rings in bytes.
    pub(super) fn ring(&self) -> usize {
        let usual = if matches!(self.metric, Metric::Scaling | Metric::Chase) { 16 << 10 } else { 4 << 20 };
        self.ring.unwrap_or(usual)
    }
}

/// The second process of `perf`. Standard input is the socket to the first.
#[derive(Args, Debug)]
pub struct PerfOther {
    /// The network namespace to enter
    #[arg(long)]
    pub(super) namespace: Option<PathBuf>,
    /// Descriptor number of the shared memory
    #[arg(long)]
    pub(super) memory: i32,
}
