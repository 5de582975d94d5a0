//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use farjump::{Mode, Rights, WaitPolicy};

use crate::environment::VARIABLES;
use crate::export::Export;
use crate::failure::EXIT_CODES;
use crate::key::{Clear, KeyFile, PeerTimeout};
use crate::limits::{Codes, parse_limit};
#[cfg(feature = "build")]
use crate::perf::{Perf, PerfOther};
use crate::quantity::{parse_bytes, parse_duration};
use crate::store::{Beginning, parse_beginning};

/// Injects functions into other processes
///
/// Machine code and its payload go straight into the memory of another process, which links the code against what it has
/// and calls it. Whoever may inject may do anything that the target may do: a target takes connections of its own user
/// only, and from other machines of who has its key.
#[derive(Parser, Debug)]
#[command(
    name = "farjump",
    version,
    arg_required_else_help = true,
    after_help = "See `farjump COMMAND --help` for examples.",
    after_long_help = after_help(),
    max_term_width = 100
)]
pub(crate) struct Arguments {
    /// The RDMA device that verbs-write and verbs-send use, with its port: rxe0, rxe0:1 (`farjump transports` lists them)
    /// [default: the first that is active]
    #[cfg(feature = "verbs")]
    #[arg(long, global = true, value_name = "NAME[:PORT]")]
    pub(crate) device: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn after_help() -> String {
    format!(
        "\
Examples:
  farjump demo                                      see it work
  farjump build sum.c -o libsum.so                  make an ifunc library
  farjump serve --listen unix:store.sock --data f   be a target
  farjump inject libsum.so --to unix:store.sock     run the function there
  farjump stats --to unix:store.sock                what the target has done
  farjump doctor                                    what is wrong with this machine
  farjump perf latency --against ucx-am             how fast it is here

{EXIT_CODES}

{VARIABLES}"
    )
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    #[cfg(feature = "build")]
    Build(Build),
    #[cfg(feature = "build")]
    Inspect(Inspect),
    Serve(Box<Serve>),
    Inject(Inject),
    Store(Store),
    Stats(Stats),
    Export(Export),
    Transports(Transports),
    Key(Key),
    Doctor(Doctor),
    #[cfg(feature = "build")]
    Demo(Demo),
    #[cfg(feature = "build")]
    #[command(hide = true)]
    DemoTarget(DemoTarget),
    #[cfg(feature = "build")]
    Perf(Box<Perf>),
    #[cfg(feature = "build")]
    #[command(hide = true)]
    PerfOther(PerfOther),
}

/// Make an ifunc library
///
/// From C, C++ or Rust sources, from crates, and from objects or archives of any compiler. What NAME_main reaches becomes
/// an image, which is what travels; the whole is an ordinary shared library besides. What an image cannot have is refused
/// by symbol, section and object.
#[cfg(feature = "build")]
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  farjump build sum.c -o libsum.so
  farjump build sum.c table.o -o plugins/sum.so --cflag -O2 --cflag -Iinclude
  farjump build src/sum.rs -o libsum.so
  farjump build ./sum-crate -o libsum.so --name sum
  farjump build squeeze.c -o libsqueeze.so --cflag -lz

A shared library among the flags that defines what the code imports does not travel: the image says that it wants it, and a
target opens it only if told to (farjump serve --wanted-library).

farjump_ifunc.h, and for a single Rust source the crate farjump_ifunc, need not be installed.")]
pub(crate) struct Build {
    /// C or C++ sources, Rust sources, crates (a folder or its Cargo.toml), objects, archives
    #[arg(required = true, value_name = "SRC")]
    pub(crate) sources: Vec<PathBuf>,
    /// The library to write
    #[arg(short, long, value_name = "LIB.so")]
    pub(crate) output: PathBuf,
    /// NAME of the routines NAME_main and so on [default: from the output's name, libNAME.so or NAME.so]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The C compiler [default: cc]
    #[arg(long, env = "FARJUMP_CC", hide_env = true)]
    pub(crate) cc: Option<String>,
    /// The linker that makes the image, GNU ld or lld [default: the first usable one of ld.bfd, ld, ld.lld]
    #[arg(long, value_name = "LD", env = "FARJUMP_LD", hide_env = true)]
    pub(crate) linker: Option<PathBuf>,
    /// A flag for the compiler, and for the link of the library; may be repeated
    #[arg(long = "cflag", value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) cflags: Vec<String>,
    /// Add debugging information for `farjump inspect --symbols`; what travels stays the same
    #[arg(short = 'g', long)]
    pub(crate) debug: bool,
    /// Show what was built as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what an ifunc library carries
///
/// What its payloads are, and its images by architecture: sizes, code id, alignment, imports. The file is read, nothing in it is run.
#[cfg(feature = "build")]
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  farjump inspect libsum.so
  farjump inspect libsum.so --symbols sum.elf

For gdb, with a target that runs as process N: `gdb -p N`, then `add-symbol-file sum.elf -o PLACE`. PLACE is the address
at which the target placed the image: the first word of its line in /tmp/perf-N.map (farjump serve --perf-map), at the
end of a crash report, or in the target's log with FARJUMP_LOG=debug. Lines and variables are known if the library was
built with -g.")]
pub(crate) struct Inspect {
    /// The library
    #[arg(value_name = "LIB.so")]
    pub(crate) library: PathBuf,
    /// Write the image as an ELF file with its symbols, for gdb's add-symbol-file; into a folder as NAME.MACHINE.elf
    #[arg(long, value_name = "OUT.elf", conflicts_with = "json")]
    pub(crate) symbols: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Be a target: run what is injected
///
/// Runs until SIGINT or SIGTERM; a second one does not wait for the function that is running. Injected functions get a
/// `struct farjump_data *` (farjump_ifunc.h) as their target_args: FILE, mapped read-only. Without --data it has no bytes.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Prints one line when it is ready, `ready: ADDRESS (pid N)`, and some figures on standard error when it ends. If injected
code crashes it, standard error says which: signal, ifunc, offset in its image, code id.

Injected code may use memcpy, memmove, memset, memcmp, farjump_reply, farjump_forward, farjump_panic, and what
--export and --allow-process-symbols add. What it uses besides is refused, and the source is told which symbol.

Examples:
  farjump serve --listen unix:store.sock --data table.bin
  farjump serve --listen unix:store.sock --export ./libkv.so --export libm.so.6
  farjump serve --listen unix:store.sock --allow-process-symbols       (printf and all of libc)
  farjump serve --listen unix:store.sock --mode local --local libsum.so     (no code comes in)
  farjump serve --listen unix:a.sock --peer next=unix:b.sock       (code may go on to b)
  farjump serve --listen tcp:0.0.0.0:7471 --key farm.key     (for other machines)
  farjump serve --listen tcp:0.0.0.0:7471 --key farm.key --transport verbs-write --device mlx5_0:1     (by RDMA)
  farjump serve --listen unix:store.sock --local libsum.so --allow observe,call     (no code comes in either)
  farjump serve --listen unix:store.sock --allow-code @reviewed.txt --max-sources 8 --max-source-memory 16M

Limits: what a source sends beyond one is refused with the reason, costs the others nothing, and is counted. Sources are
told of --max-frame, --max-image and --max-payload when they connect, and do not send what is over them. In sizes, K, M and
G are 1024, 1024 K and 1024 M. The file of --allow-code has one id a line; what follows it there is for people, as are lines
that start with #. What --max-source-memory counts: the source's mailbox and 4 KiB, a bigger one while it has one (or the
longest frame that it may send, over a transport that delivers whole frames), the code that it was the first to bring
while that is held (the image, and the room of its code and statics), and an answer that waits for room at the source.")]
pub(crate) struct Serve {
    /// Where to listen: unix:PATH, where a socket that a target left behind is taken over, or tcp:HOST:PORT, with a key
    /// (--key) unless HOST is this machine's loopback; port 0 has the system choose one
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// The key for peers at tcp: addresses [default: that of --key, if its file holds one alone]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) peer_timeout: PeerTimeout,
    #[command(flatten)]
    pub(crate) clear: Clear,
    /// The file that injected functions work on
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// A shared library to load, whose symbols are offered, by path or soname; may be repeated
    #[arg(long = "export", value_name = "LIB.so")]
    pub(crate) exports: Vec<PathBuf>,
    /// A shared library, by soname (libz.so.1), to load for injected code that wants it; may be repeated
    #[arg(long = "wanted-library", value_name = "NAME")]
    pub(crate) wanted: Vec<String>,
    /// What those may do who may connect, separated by commas: observe (stats, store), call (functions that are here), inject
    /// (bring code), drop (store --drop), export (farjump export); or none
    #[arg(long = "allow", value_name = "RIGHT,…", default_value_t)]
    pub(crate) rights: Rights,
    /// Let those who may connect also give it further libraries while it runs (farjump export), which go before all that it offers:
    /// adds export to --allow
    #[arg(long)]
    pub(crate) allow_export: bool,
    /// Offer the symbols of this process too, all of libc among them
    #[arg(long)]
    pub(crate) allow_process_symbols: bool,
    /// How code may come to run, separated by commas: cached, always, local, in-place
    #[arg(long = "mode", value_name = "MODE,…", value_delimiter = ',', default_values_t = Mode::DEFAULT)]
    pub(crate) modes: Vec<Mode>,
    /// A library whose function is here for sources in mode local; may be repeated
    #[arg(long = "local", value_name = "LIB.so")]
    pub(crate) locals: Vec<PathBuf>,
    /// Another target, to which injected code may forward itself by this name (farjump_forward); may be repeated
    #[arg(long = "peer", value_name = "NAME=ADDRESS", value_parser = parse_peer)]
    pub(crate) peers: Vec<Peer>,
    /// Let in code with this id and no other; may be repeated. @FILE lists several. What --local names need not be among them
    #[arg(long = "allow-code", value_name = "ID|@FILE")]
    pub(crate) codes: Vec<Codes>,
    /// Largest frame of a source, with header and code [default: what the largest payload and code need]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_frame: Option<usize>,
    /// Largest image of a source [default: no limit but the frame]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_image: Option<usize>,
    /// Largest payload of a source [default: 64M, or what the mailbox holds]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_payload: Option<usize>,
    /// Most sources at a time [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_sources: Option<u32>,
    /// Memory that one source may take here, its mailbox included [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub(crate) max_source_memory: Option<usize>,
    /// Room for frames of each source, such as 64K or 4M, rounded up to a power of two. A source gets more while it sends
    /// payloads that do not fit
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_mailbox)]
    pub(crate) mailbox: usize,
    /// How much code to hold, as it travels; the least recently used goes when more comes, with its statics
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) store_bytes: usize,
    /// How many images to hold, likewise
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub(crate) store_images: usize,
    /// How often to look for frames before going to sleep: a number of turns, `never` to sleep at once, `always` never to
    /// sleep [default: by the number of processors]
    #[arg(long, value_name = "TURNS", value_parser = parse_spin)]
    pub(crate) spin: Option<WaitPolicy>,
    /// Take this transport and no other; `ucx` for ucx-put and ucx-am [default: shm]
    #[arg(long, value_name = "NAME", env = "FARJUMP_TRANSPORT", hide_env = true)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    /// Write /tmp/perf-PID.map, by which perf shows injected code as ifunc:NAME. It is left for `perf report`
    #[arg(long)]
    pub(crate) perf_map: bool,
    /// Print the line when ready as JSON: {"ready": ADDRESS, "pid": N}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run the function of a library in a target
///
/// The reply goes to standard output as it is, of several calls that of the last; figures go to standard error.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Figures: frames sent, bytes of code and payload in them, the time of the first call from injecting to the reply, how
much of it the target took to link the code, and the median of the later calls. They name the transport and, of tcp,
whether frames were sealed and by what; -v shows what `farjump transports --to` does besides.

Examples:
  farjump inject libgrep.so --to unix:store.sock --args panic | od -An -tu8
  farjump inject libsum.so --to unix:store.sock --args-file row.bin --repeat 1000 --json
  farjump inject libsum.so --to tcp:node7:7471 --key farm.key
  farjump inject libsum.so --to tcp:node7:7471 --key farm.key --transport verbs-write --device mlx5_0:1
  echo -n you | farjump inject libhello.so --to unix:store.sock --args-file - --timeout 500ms")]
pub(crate) struct Inject {
    /// The library. It is only read, unless it has payload routines of its own, which then run in this process (farjump inspect)
    #[arg(value_name = "LIB.so")]
    pub(crate) library: PathBuf,
    /// The target: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    #[command(flatten)]
    pub(crate) peer_timeout: PeerTimeout,
    #[command(flatten)]
    pub(crate) clear: Clear,
    /// What the library's payload routines get as source_args [default: no bytes]
    #[arg(long, value_name = "STR", conflicts_with = "args_file", allow_hyphen_values = true)]
    pub(crate) args: Option<OsString>,
    /// As --args, from a file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) args_file: Option<PathBuf>,
    /// How the code comes to run: `cached` sends it with the first call, `always` with each; in mode `local` the target has
    /// the library itself; `in-place` sends it with each call and runs it where it lies, in the mailbox
    #[arg(long, value_name = "MODE", default_value_t = Mode::Cached)]
    pub(crate) mode: Mode,
    /// How many times to call it, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) repeat: u32,
    /// How long connecting and each call may take, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// The transport; `ucx` for the better of ucx-put and ucx-am [default: shm where the target has it, else what it has]
    #[arg(long, value_name = "NAME", env = "FARJUMP_TRANSPORT", hide_env = true)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    /// Show the path to the target, too: what frames travel over, whether they are sealed, and why not another way
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the code that a target holds, or drop it
///
/// Each image by its code id: the name under which it first came, its bytes, how often it was called and how long that took,
/// when last, and the program that brought it. Of short calls only some are timed: that time is an estimate.
#[derive(Args, Debug)]
#[command(after_long_help = "\
What was used last comes first. To drop code takes the right to it (serve --allow). Code that is dropped loses its statics, and no call: a source that
calls it again is asked for it. Functions that the target was given itself (serve --local) stay.

The target answers when the function that it is running has returned.

Examples:
  farjump store --to unix:store.sock
  farjump store --to unix:store.sock --drop edc1
  farjump store --to unix:store.sock --drop-all
  farjump store --to unix:store.sock --json | jq '.images[] | select(.calls == 0) | .id'

docs/operations.md lists what --json prints.")]
pub(crate) struct Store {
    /// The target: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// Drop the code with this id, of which 4 digits or more are enough if no other id begins so
    #[arg(long, value_name = "ID", value_parser = parse_beginning, conflicts_with = "drop_all")]
    pub(crate) drop: Option<Beginning>,
    /// Drop all code
    #[arg(long)]
    pub(crate) drop_all: bool,
    /// How long each question may take, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a target has done, and who is connected
///
/// Links, frames, calls, refusals by their cause, the code store, and a line for each source: the bytes of its frames, the
/// memory that it has taken where that is limited, and whether its next frames wait for code or for room for an answer.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters begin at 0 when a target starts. It answers when the function that it is running has
returned. The bytes of frames are those that they took of their mailboxes: small ones that come one
at a time lie far apart there.

Examples:
  farjump stats --to unix:store.sock
  watch farjump stats --to unix:store.sock
  farjump stats --to unix:store.sock --json | jq .calls

docs/operations.md lists what --json prints.")]
pub(crate) struct Stats {
    /// The target: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// How long the question may take, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the paths that frames can take
///
/// Every transport, in this build or not: whether it is usable on this machine, or why not and the mend; how a frame is
/// known to have arrived; the largest frame. Then every port of an RDMA device: state, addresses, and whether links can be made
/// over it, which is tried. With --to the path to that target: what its frames travel over, and why not another.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Arrival rules:
  stores     plain stores into memory of both, the signal last
  delivered  the transport hands over whole frames
  in-order   one write, whose last byte lands last
  fenced     the frame, a fence, then the signal
  write-imm  one write, and a completion at the receiver
  checked    one write, and a checksum

Examples:
  farjump transports
  farjump transports --transport verbs-write --device mlx5_0:1
  farjump transports --to unix:store.sock --transport ucx

docs/operations.md lists what --json prints.")]
pub(crate) struct Transports {
    /// Connect to this target, unix:PATH or tcp:HOST:PORT, and show the path to it
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: Option<String>,
    /// Show this one alone, `ucx` for ucx-put and ucx-am; with --to, take it [default: all; with --to, the best that both have]
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    /// How long connecting may take, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    #[command(flatten)]
    pub(crate) clear: Clear,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a key for meeting over TCP
///
/// Both sides have a copy of it, and who has one may do what the targets that have it allow. It authenticates both
/// and encrypts what is said on the control connection, code on request and reasons of refusals among it. What the transport
/// carries, calls and replies, is encrypted by tcp alone (docs/security.md).
#[derive(Args, Debug)]
#[command(after_long_help = "\
The file has mode 0600, and is not taken if others may read or write it, as ssh does with its keys.
What is there already is not overwritten. Without FILE the key goes to standard output.

A target may have up to 64 keys, one for each of its sources: --name adds one to FILE. Each is a line: the key's digits, its
name, and allow=RIGHT,… where what it lets do is not what `serve --allow` says for all. Lines that begin with # are for people. A
source has the line of its own key, in a file of its own. A target looks at its file while it runs: take a line out, and the links by that
key end within a second or so; change its rights, and they end and may be made anew with those.

Examples:
  farjump key farm.key && scp -p farm.key node7:
  farjump key farm.key --name node7 --allow observe,call     (one more, for node7)
  grep ' node7' farm.key | ssh node7 'umask 077; cat > farm.key'     (its line, and no other, for node7)
  farjump serve --listen tcp:0.0.0.0:7471 --key farm.key      (on node7)
  farjump inject libsum.so --to tcp:node7:7471 --key farm.key")]
pub(crate) struct Key {
    /// The file to write
    pub(crate) file: Option<PathBuf>,
    /// Add a key to FILE, or make it, under this name, by which the target's log and `farjump stats` call it
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) name: Option<String>,
    /// What who has it may do at the targets that have FILE, separated by commas [default: what serve --allow says]
    #[arg(long = "allow", value_name = "RIGHT,…", requires = "name")]
    pub(crate) rights: Option<Rights>,
}

/// Say what on this machine would make farjump slow or impossible
///
/// Processors, memory, the kernel, compilers and libraries: what is there, what it means for farjump, and what to type to
/// mend it. Nothing on the machine is changed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Verdicts:
  impossible  no source or no target can run here
  slow        they run, and this costs time
  note        neither, but good to know: something that only building, tools or later versions need
  ok

Words in capitals in a mend (UNIT, PATH, IMAGE) are for you to fill in.

Ends with 0 if farjump works here, slow or not, and with 6 if something is impossible.

With --json, one object:
  verdict   impossible, slow or ok: the worst of all findings, notes aside
  findings  a list of objects, always in the same order:
    name      what was looked at
    verdict   impossible, slow, note or ok
    found     what is there, a sentence for people
    figures   the same for programs: an object of numbers and truth values, may be empty
    means     what it means for farjump
    mend      what to type, or null

docs/doctor.md lists the names and figures.")]
pub(crate) struct Doctor {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// See it work: three functions run in a process that has never seen them
///
/// Starts a target that maps FILE, injects histogram, grep and crc32, and compares the answers with what this process
/// computes itself. Needs a C compiler, and no privileges; leaves no file behind.
#[cfg(feature = "build")]
#[derive(Args, Debug)]
#[command(after_long_help = "\
Columns:
  sent           bytes of code and of payload of the first call; later calls send no code
  first call     from injecting to the reply, and how much of it the target took to link the code
  later          the same without code, median
  moving the file instead
                 what it takes to get FILE's bytes from the target over a Unix socket, and to compute here

Examples:
  farjump demo
  farjump demo --transport verbs-write --device mlx5_0:1     (both processes use the RDMA device)

Ends with 1 if an answer is wrong.")]
pub(crate) struct Demo {
    /// The file that the target maps [default: this program]
    pub(crate) file: Option<PathBuf>,
    /// What grep counts [default: a literal that occurs in FILE]
    #[arg(long, value_name = "STR")]
    pub(crate) literal: Option<OsString>,
    /// The transport [default: the best]
    #[arg(long, value_name = "NAME", env = "FARJUMP_TRANSPORT", hide_env = true)]
    pub(crate) transport: Option<String>,
    /// Take libhistogram.so, libgrep.so and libcrc32.so from here, built elsewhere: for a machine without a C compiler
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// Where the target listens, such as tcp:127.0.0.1:0 [default: a Unix socket]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Words, as for a shell without quotes, that start the target on this machine, such as "ip netns exec far" for
    /// another network
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launch: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// Have frames travel in the clear by `tcp` although there is a key, for networks that you trust
    #[arg(long)]
    pub(crate) clear: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The process that `demo` injects into. Standard input is the socket to it.
#[cfg(feature = "build")]
#[derive(Args, Debug)]
pub(crate) struct DemoTarget {
    /// Where to listen
    #[arg(long)]
    pub(crate) listen: String,
    /// The file to map
    #[arg(long)]
    pub(crate) data: PathBuf,
    /// The demo's folder, to be removed at the end
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The transport to take
    #[arg(long)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    /// Whether frames may travel in the clear
    #[arg(long)]
    pub(crate) clear: bool,
}

/// Whether UCX may go over TCP.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct UcxTcp {
    /// Let ucx-am go over UCX's TCP, which the other side has to allow too. A process that reaches a port of UCX's may then
    /// write this process's memory, with or without the key: docs/security.md. `tcp` reaches other machines without it
    #[arg(long = "ucx-tcp")]
    pub(crate) tcp: bool,
}

impl UcxTcp {
    /// What the transports may do.
    pub(crate) fn options(self) -> farjump::BackendOptions {
        farjump::BackendOptions::new().with_ucx_tcp(self.tcp)
    }
}

/// Largest mailbox, in bytes: each source gets one.
const MAX_MAILBOX: usize = 1 << 30;

pub(crate) fn parse_mailbox(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if bytes > MAX_MAILBOX => Err("a mailbox has at most 1G".to_owned()),
        bytes if bytes < 4096 => Err("a mailbox has at least 4K".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A peer of a target: `NAME=ADDRESS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) address: String,
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => {
            Ok(Peer { name: name.to_owned(), address: address.to_owned() })
        }
        _ => Err("write the name, `=` and the address: next=unix:other.sock".to_owned()),
    }
}

fn parse_spin(text: &str) -> Result<WaitPolicy, String> {
    match text {
        "never" => Ok(WaitPolicy::sleep_only()),
        "always" => Ok(WaitPolicy::spin_only()),
        _ => match text.parse() {
            // A few turns with `pause` and a few yields before sleeping, as by default.
            Ok(spins) => Ok(WaitPolicy { spins, pauses: spins / 4, yields: 16 }),
            Err(_) => Err("write a number of turns, `never` or `always`".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_makes_sense_to_clap() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_peer_is_a_name_and_an_address() {
        let peer = parse_peer("next=unix:a=b").expect("it is one");
        assert_eq!((&*peer.name, &*peer.address), ("next", "unix:a=b"));
        for wrong in ["", "next", "=unix:a", "next="] {
            assert!(parse_peer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mailbox_too_small_or_too_large_is_refused() {
        assert_eq!(parse_mailbox("64K"), Ok(64 << 10));
        assert_eq!(parse_mailbox("1G"), Ok(1 << 30));
        for wrong in ["0", "4095", "2G", "x"] {
            assert!(parse_mailbox(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spinning_has_three_forms() {
        assert_eq!(parse_spin("never"), Ok(WaitPolicy::sleep_only()));
        assert_eq!(parse_spin("always"), Ok(WaitPolicy::spin_only()));
        assert_eq!(parse_spin("100").map(|policy| policy.spins), Ok(100));
        assert!(parse_spin("sometimes").is_err());
    }
}
