//! The command line of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farjump::{ForwardLimits, Grant, Level, Machine, Mode, Rights, WaitPolicy};

use super::limits::{AllowedCodes, parse_limit};
use farjump_benches::program::link_options::{
    Clear, KeyFile, PeerTimeout, RdmaDevice, UcxTcp, parse_address, parse_transport,
};
use farjump_benches::program::units::{parse_bytes, parse_duration, parse_mailbox};

/// Be a target: run injected functions
///
/// Runs until SIGINT, SIGTERM or SIGHUP. Then it gives the running function time to end (--grace); a second signal does
/// not wait for it. It removes the socket in each case. Injected functions get a `struct farjump_data *`
/// (farjump_ifunc.h) as target_args: FILE, mapped read-only, or no bytes without --data.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Prints one line when it is ready, `ready: ADDRESS (pid N)`, and its statistics on standard error when it ends. If
injected code crashes it, standard error names the code: signal, ifunc, offset in its image, code id.

Injected code may use memcpy, memmove, memset, memcmp, bcmp, strlen, farjump_reply, farjump_forward, farjump_again, farjump_panic,
farjump_private_copy, and the symbols that --export and --allow-process-symbols add. The target refuses code that uses another
symbol, and the refusal names it.

Examples:
  farjump serve --listen unix:store.sock --data table.bin
  farjump serve --listen unix:store.sock --export ./libkv.so --export libm.so.6
  farjump serve --listen unix:store.sock --allow-process-symbols   # printf and all of libc
  farjump serve --listen unix:store.sock --mode local --local libsum.so   # no code comes in
  farjump serve --listen unix:a.sock --destination next=unix:b.sock   # code may forward itself to b
  farjump serve --listen tcp:0.0.0.0:7471 --key farm.key   # for other machines
  farjump serve --listen tcp:0.0.0.0:7471 --key farm.key --transport verbs-write --device mlx5_0:1   # by RDMA
  farjump serve --listen unix:store.sock --debug --symbols libsum.so   # gdb stops in sum.c: break sum_main
  farjump serve --listen unix:store.sock --local libsum.so --allow observe,call   # no code comes in either
  farjump serve --listen unix:store.sock --bitcode=prefer   # compiles code that comes for this CPU
  farjump serve --listen unix:store.sock --objects 4G --mode local --allow observe,call   # objects, and no code comes in
  farjump serve --listen unix:store.sock --allow-code @reviewed.txt --max-sources 8 --max-source-memory 16M

Limits: the target refuses frames over a limit with the reason, and counts them. They cost other sources nothing. Sources
learn --max-frame, --max-image and --max-payload when they connect, and send nothing over these limits. In sizes, K, M and
G are 1024, 1024 K and 1024 M. The file of --allow-code has one id a line; the rest of a line is a comment, and so is a
line that starts with #.

--max-source-memory counts, for each source:
  mailbox  its mailbox and 4 KiB; its large mailbox while it has one, or the longest frame that it may send, over a
           transport that delivers whole frames
  code     code that it brought first, while that is in the store: the image, and its code and statics in the arena
  replies  a reply, also of a destination, that waits for credit at the source or that the program holds; replies that
           are gathered for its calls")]
pub(crate) struct Serve {
    /// The address to listen at: unix:PATH, unix:@NAME (abstract) or tcp:HOST:PORT. At unix:PATH it takes over the
    /// socket of an ended target. tcp: requires a key (--key) unless HOST is this machine's loopback. For port 0 the
    /// system chooses one
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// The key for destinations at tcp: addresses [default: that of --key, if its file holds only one]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) peer_timeout: PeerTimeout,
    #[command(flatten)]
    pub(crate) clear: Clear,
    /// The file that injected functions work on
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// A shared library to load, by path or soname, whose symbols are offered; may be repeated
    #[arg(long = "export", value_name = "LIB.so")]
    pub(crate) exports: Vec<PathBuf>,
    /// A shared library to load for injected code that wants it, by soname (libz.so.1); may be repeated
    #[arg(long = "wanted-library", value_name = "NAME")]
    pub(crate) wanted: Vec<String>,
    /// The rights of sources, separated by commas: observe (stats, store), call (functions that the target
    /// has), inject (bring code), drop (store --drop), export (farjump export); or none. A list replaces the
    /// default; names with a sign change it: +drop,-inject
    #[arg(long = "allow", value_name = "RIGHT,…", default_value_t = Grant::List(Rights::default()),
        allow_hyphen_values = true)]
    pub(crate) rights: Grant,
    /// Let sources add libraries while the target runs (farjump export). Symbols of these libraries take precedence
    /// over all others. Adds export to the rights of --allow, as +export there does
    #[arg(long)]
    pub(crate) allow_export: bool,
    /// Offer the symbols of this process too, all of libc included
    #[arg(long)]
    pub(crate) allow_process_symbols: bool,
    /// The modes that sources may use, separated by commas: cached, always, local, in-place
    #[arg(long = "mode", value_name = "MODE,…", value_delimiter = ',', default_values_t = Mode::DEFAULT)]
    pub(crate) modes: Vec<Mode>,
    /// A library whose function sources may call in mode local; may be repeated
    #[arg(long = "local", value_name = "LIB.so")]
    pub(crate) locals: Vec<PathBuf>,
    /// Another target, to which injected code may forward itself by this name (farjump_forward); may be repeated
    #[arg(long = "destination", value_name = "NAME=ADDRESS", value_parser = parse_destination)]
    pub(crate) destinations: Vec<Destination>,
    /// Let functions make code, as images or bitcode, and send it messages (farjump_make, farjump_inject)
    #[arg(long)]
    pub(crate) allow_making: bool,
    #[command(flatten)]
    pub(crate) forward_limits: ForwardLimitsArguments,
    /// Allow code with this id, or of the family with this id (a library's images for all machines), and no other;
    /// may be repeated. @FILE lists several. Those of --local are always allowed
    #[arg(long = "allow-code", value_name = "ID|@FILE")]
    pub(crate) codes: Vec<AllowedCodes>,
    /// Largest frame of a source, with header and code [default: as the largest payload and code need]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_frame: Option<usize>,
    /// Largest image of a source [default: limited by the frame alone]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_image: Option<usize>,
    /// Largest payload of a source [default: 64M, or the mailbox's capacity]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_payload: Option<usize>,
    /// Most sources at a time [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_sources: Option<u32>,
    /// Memory that one source may take here, its mailbox included [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_source_memory: Option<usize>,
    /// Capacity for the frames of each source, such as 64K or 4M, rounded up to a power of two. A source gets a large
    /// mailbox while it sends payloads that do not fit
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_mailbox)]
    pub(crate) mailbox: usize,
    /// Capacity of the code store in bytes of images. The target drops the least recently used image first, with its
    /// statics
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) store_bytes: usize,
    /// Capacity of the code store in images, likewise
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub(crate) store_images: usize,
    /// Keep objects for other processes (farjump put), in at most this much memory. Only the used part is taken
    /// [default: no objects]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) objects: Option<usize>,
    /// With --objects: when the memory is full, write the least recently used objects to a file without a name in this
    /// folder [default: refuse new objects]
    #[arg(long, value_name = "FOLDER", requires_all = ["objects", "objects_spill_bytes"])]
    pub(crate) objects_spill: Option<PathBuf>,
    /// Most bytes of the file of --objects-spill
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, requires = "objects_spill")]
    pub(crate) objects_spill_bytes: Option<usize>,
    /// Claim a CPU of this level, and no features above it: baseline, and on x86-64 v2, v3 or v4. Sources send code for
    /// no higher level [default: all features of the CPU]
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    pub(crate) cpu_level: Option<Level>,
    #[cfg(feature = "bitcode")]
    #[command(flatten)]
    pub(crate) bitcode: Bitcode,
    /// Bytes reserved for code, and as many again for its statics. Both take memory at once. They take as much address
    /// space, and 1 GiB more (`ulimit -v`)
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_bytes)]
    pub(crate) arena_size: usize,
    /// Polls without a frame before the target sleeps: a number, `never` to sleep at once, `always` never to
    /// sleep, `events` never to sleep but to stop the core between polls (aarch64 with one source; elsewhere it
    /// pauses) [default: by the number of processors]
    #[arg(long, value_name = "TURNS", value_parser = parse_spin)]
    pub(crate) spin: Option<WaitPolicy>,
    /// Time for a function that runs when a signal stops the target; then the process ends, and the function
    /// with it
    #[arg(long, value_name = "T", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Time for a source to make its link here, and for a link to a destination
    #[arg(long, value_name = "T", default_value = "2s", value_parser = parse_duration)]
    pub(crate) handshake_timeout: Duration,
    /// Use only this transport; `ucx` for ucx-put and ucx-am [default: shm]
    #[arg(long, value_name = "NAME", env = "FARJUMP_TRANSPORT", hide_env = true, value_parser = parse_transport)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) device: RdmaDevice,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    /// Write /tmp/perf-PID.map, by which perf shows injected code as ifunc:NAME; kept for `perf report`
    #[arg(long)]
    pub(crate) perf_map: bool,
    /// Let debuggers set breakpoints in injected code, and show them its symbols
    #[arg(long)]
    pub(crate) debug: bool,
    /// With --debug: a library built with `farjump build -g` whose code sources will send; may be repeated. Debuggers
    /// then know its functions, lines and variables. They know those of --local in any case
    #[arg(long = "symbols", value_name = "LIB.so", requires = "debug")]
    pub(crate) symbols: Vec<PathBuf>,
    /// Print the line when ready as JSON: {"ready": ADDRESS, "pid": N}, and the one at the end
    #[arg(long)]
    pub(crate) json: bool,
}

// Bitcode, and the program that compiles it.
#[cfg(feature = "bitcode")]
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
pub(crate) struct Bitcode {
    /// Take bitcode (farjump build --bitcode), which the program farjump_compiler compiles for this CPU: with
    /// `fallback` that of libraries without an image for this CPU, with `prefer` that of all libraries that have any
    #[arg(
        long = "bitcode",
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "fallback",
        value_parser = ["fallback", "prefer"]
    )]
    pub(crate) when: Option<String>,
    /// With --bitcode: the program that compiles [default: farjump_compiler beside this program, or in
    /// ../libexec/farjump from its folder; no other user may be able to write it there]
    #[arg(long, value_name = "FILE", requires = "when")]
    pub(crate) compiler: Option<PathBuf>,
    /// With --bitcode: the library of LLVM, 17 or newer [default: the newest that is installed, or in the toolchain of the
    /// compiler of Rust that RUSTC names]
    #[arg(long, value_name = "FILE", requires = "when")]
    pub(crate) llvm: Option<PathBuf>,
    /// With --bitcode: keep compiled images in this folder, for later runs
    #[arg(long, value_name = "FOLDER", requires = "when")]
    pub(crate) bitcode_cache: Option<PathBuf>,
    /// With --bitcode: time limit for compiling one library
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) compile_timeout: Duration,
    /// With --bitcode: memory limit for compiling one library [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) compile_memory: Option<usize>,
}

/// Limits for functions that forward themselves.
#[derive(Args, Clone, Debug)]
pub(crate) struct ForwardLimitsArguments {
    /// Messages that a call may send, by farjump_forward and farjump_again
    #[arg(long, value_name = "N", default_value_t = ForwardLimits::default().messages)]
    max_forwards: usize,
    /// Targets that may forward a call, one after the other
    #[arg(long, value_name = "N", default_value_t = ForwardLimits::default().hops)]
    max_hops: u32,
    /// Payload that may wait for one destination, or to run again [default: the capacity of the mailbox]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    max_forward_bytes: Option<usize>,
    /// Times that a call may run again here (farjump_again)
    #[arg(long, value_name = "N", default_value_t = ForwardLimits::default().repeats)]
    max_again: u32,
}

impl ForwardLimitsArguments {
    pub(crate) fn limits(&self) -> ForwardLimits {
        let mut limits = ForwardLimits::default();
        (limits.messages, limits.hops) = (self.max_forwards, self.max_hops);
        (limits.bytes, limits.repeats) = (self.max_forward_bytes, self.max_again);
        limits
    }
}

/// A destination of a target: `NAME=ADDRESS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) address: String,
}

fn parse_destination(text: &str) -> Result<Destination, String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => {
            Ok(Destination { name: name.to_owned(), address: parse_address(address)? })
        }
        _ => Err("write the name, `=` and the address: next=unix:other.sock".to_owned()),
    }
}

fn parse_spin(text: &str) -> Result<WaitPolicy, String> {
    match text {
        "never" => Ok(WaitPolicy::sleep_only()),
        "always" => Ok(WaitPolicy::spin_only()),
        "events" => Ok(WaitPolicy::events_only()),
        _ => match text.parse() {
            // Before sleeping, a few turns with `pause` and a few yields, as by default.
            Ok(spins) => Ok(WaitPolicy { spins, pauses: spins / 4, events: 0, yields: 16 }),
            Err(_) => Err("write a number of polls, `never`, `always` or `events`".to_owned()),
        },
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let machine = Machine::native().unwrap_or(Machine(0));
    Level::parse(machine, text).ok_or_else(|| {
        let levels: Vec<_> = Level::all(machine).map(|level| level.to_string()).collect();
        format!("the levels of {machine} are {}", levels.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_name_and_an_address() {
        let destination = parse_destination("next=unix:a=b").expect("it is one");
        assert_eq!((&*destination.name, &*destination.address), ("next", "unix:a=b"));
        for wrong in ["", "next", "=unix:a", "next="] {
            assert!(parse_destination(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_options_that_there_are() {
        use farjump::{CallError, Error, InjectError, RefusalCause};
        use farjump_benches::program::failure::Failure;
        use farjump_benches::program::rust_names;

        fn check<C: Args>(failure: impl Into<Failure>, named: &[&str]) {
            let command = C::augment_args(clap::Command::new("any"));
            let options: Vec<_> = command.get_arguments().filter_map(|option| option.get_long()).collect();
            let text = failure.into().to_string();
            let words = text.split(|letter: char| letter.is_whitespace() || "`()".contains(letter));
            let found: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
            assert_eq!(found, named, "{text}");
            assert!(named.iter().all(|name| options.contains(name)), "{named:?} of {options:?}");
        }

        let error = InjectError::TooLarge { ifunc: "sum".to_owned(), len: 2, max: 1 };
        check::<Serve>(Error::from(error), &["mailbox", "max-payload", "max-frame", "max-source-memory"]);
        for (name, option) in rust_names::OPTIONS {
            let Some(option) = option else { continue };
            let words = option.split(|letter: char| letter.is_whitespace() || letter == '`');
            let named: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
            let (ifunc, text) = ("sum".to_owned(), format!("refused ({name})"));
            let refused = CallError::Refused { ifunc, cause: RefusalCause::Policy, text };
            match option.contains("farjump build") {
                #[cfg(feature = "build")]
                true => check::<crate::build::Build>(Error::from(refused), &named),
                #[cfg(not(feature = "build"))]
                true => {}
                // A build without RDMA has no option for it.
                false if *option == "--device" && !cfg!(feature = "verbs") => {}
                false => check::<Serve>(Error::from(refused), &named),
            }
        }
        #[cfg(feature = "build")]
        check::<crate::build::Build>(farjump::build::BuildError::Name { name: "9".to_owned() }, &["name"]);
    }

    #[test]
    fn spinning_has_four_forms() {
        assert_eq!(parse_spin("never"), Ok(WaitPolicy::sleep_only()));
        assert_eq!(parse_spin("always"), Ok(WaitPolicy::spin_only()));
        assert_eq!(parse_spin("events"), Ok(WaitPolicy::events_only()));
        assert_eq!(parse_spin("100").map(|policy| policy.spins), Ok(100));
        assert!(parse_spin("sometimes").is_err());
    }
}
