//! `build`: an ifunc library from sources, objects and archives.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farjump::build::Options;
use farjump::inspect::inspect;
use farjump::{Cpu, Machine, Platform, PlatformError};

use crate::inspect::show;
use crate::query_link::QueryLink;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::link_options::{Clear, KeyFile, UcxTcp, parse_address, parse_transport};
use farjump_benches::program::output;
use farjump_benches::program::units::parse_duration;

/// Make an ifunc library
///
/// Sources are C, C++ or Rust files, crates, LLVM bitcode, and objects or archives of any compiler. The code that
/// NAME_main reaches becomes an image, which travels; the file as a whole is an ordinary shared library. The command
/// refuses code that cannot be part of an image, and names its symbol, section and object.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  farjump build sum.c -o libsum.so
  farjump build sum.c table.o -o plugins/sum.so --cflag -O2 --cflag -Iinclude
  farjump build src/sum.rs -o libsum.so
  farjump build ./sum-crate -o libsum.so --name sum
  farjump build squeeze.c -o libsqueeze.so --cflag -lz
  farjump build sum.c -o libsum.so --target x86_64-unknown-linux-gnu --target x86_64-unknown-linux-gnu:v3 \
    --target aarch64-unknown-linux-gnu --target riscv64gc-unknown-linux-gnu
  farjump build sum.c -o libsum.so --cflag -O2 --for-peer unix:store.sock

With --target the library carries an image for each platform named. A source sends the best image for the machine of its
target. The library itself is for this machine. Other machines need a compiler: theirs (aarch64-linux-gnu-gcc), clang with
lld, or zig (--cc 'zig cc'). Rust sources need `rustup target add TRIPLE`.

With --for-peer the library carries one more image, for exactly the CPU of that target: it may use each instruction that
the target has and the compiler knows. The image names the features that it needs, and a target that lacks one of them
refuses it. Other targets get the other images. This image belongs to no family: an --allow-code list needs its own id.

With --bitcode a target that takes bitcode (farjump serve --bitcode) needs no image: it compiles for its own CPU, with the
vector instructions of that CPU. Compile with -O2 for fast loops. The LLVM of the compiler must be no newer than the
target's.

A shared library among the flags that defines imports of the code does not travel. The image names it as a wanted library,
and a target opens it only if it is allowed there (farjump serve --wanted-library).

farjump_ifunc.h, and for a single Rust source the crate farjump_ifunc, need not be installed.")]
pub(crate) struct Build {
    /// C or C++ sources, Rust sources, crates (a folder or its Cargo.toml), bitcode, objects, archives; or one library that
    /// carries its source
    #[arg(required = true, value_name = "SRC")]
    pub(crate) sources: Vec<PathBuf>,
    /// The library to write
    #[arg(short, long, value_name = "LIB.so")]
    pub(crate) output: PathBuf,
    /// NAME of the routines NAME_main and so on [default: from the output's name, libNAME.so or NAME.so]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A platform to build an image for, TRIPLE or TRIPLE:LEVEL (x86_64-unknown-linux-gnu has the levels v2, v3,
    /// v4); may be repeated [default: this machine, any CPU]
    #[arg(long = "target", value_name = "TRIPLE[:LEVEL]")]
    pub(crate) targets: Vec<Platform>,
    /// Build one more image, for exactly the CPU of this target: unix:PATH, unix:@NAME or tcp:HOST:PORT. Without
    /// --target the other images are for any CPU of its machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) for_peer: Option<String>,
    #[command(flatten)]
    pub(crate) peer: PeerOptions,
    /// The C compiler, with arguments if it needs some ('zig cc') [default: cc]
    #[arg(long, env = "FARJUMP_CC", hide_env = true)]
    pub(crate) cc: Option<String>,
    /// The C compiler for another machine; may be repeated [default: --cc if it is clang or zig, or the first of the
    /// machine's own gcc, clang, zig cc that compiles a line]
    #[arg(long = "target-cc", value_name = "TRIPLE=CC", value_parser = target_cc)]
    pub(crate) target_ccs: Vec<(Machine, String)>,
    /// The linker that makes images, GNU ld or lld, or `own` for farjump's own [default: the first one of ld.bfd,
    /// ld, ld.lld, own that links a line]
    #[arg(long, value_name = "LD", env = "FARJUMP_LD", hide_env = true)]
    pub(crate) linker: Option<PathBuf>,
    /// A flag for the compiler; may be repeated. The step that links the library gets those for linking: -l, -L, -Wl,
    /// and files
    #[arg(long = "cflag", value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) cflags: Vec<String>,
    /// Also put bitcode into the library, for the machine of each --target. A target without a matching image compiles
    /// it for its own CPU. Sources: C and C++ by clang or zig, single Rust files, and bitcode files
    #[arg(long)]
    pub(crate) bitcode: bool,
    /// Put the sources into the library, with the local headers that they include: C, C++ and single Rust files.
    /// Such a library can be SRC of a later build
    #[arg(long)]
    pub(crate) carry_source: bool,
    /// Add debugging information for `farjump inspect --symbols`; the image stays the same
    #[arg(short = 'g', long)]
    pub(crate) debug: bool,
    /// Show the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

// The connection to the target that states its CPU.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
pub(crate) struct PeerOptions {
    /// With --for-peer, connect to the target by this transport [default: the best that both have]
    #[arg(long, value_name = "NAME", requires = "for_peer", value_parser = parse_transport)]
    pub(crate) transport: Option<String>,
    /// With --for-peer, time limit for connecting, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) key: KeyFile,
    #[command(flatten)]
    pub(crate) clear: Clear,
    #[command(flatten)]
    pub(crate) ucx: UcxTcp,
}

impl PeerOptions {
    /// Connects to the target at `address`, and returns the CPU that it claims.
    fn cpu_of(&self, address: &str) -> Result<Cpu, Failure> {
        let PeerOptions { transport, timeout, key, clear, ucx } = self;
        let (transport, timeout) = (transport.as_deref(), *timeout);
        let query = QueryLink { program: "farjump build", transport, timeout, key, clear, ucx };
        Ok(query.connect(address)?.peer_cpu())
    }
}

/// Builds a library and shows its contents.
pub(crate) fn run(arguments: Build) -> Result<(), Failure> {
    let cpu = match &arguments.for_peer {
        Some(address) => Some(arguments.peer.cpu_of(address)?),
        None => None,
    };
    let json = arguments.json;
    let options = Options {
        inputs: arguments.sources,
        output: arguments.output,
        name: arguments.name,
        targets: arguments.targets,
        cpu,
        cc: arguments.cc,
        target_ccs: arguments.target_ccs,
        cflags: arguments.cflags,
        linker: arguments.linker,
        bitcode: arguments.bitcode,
        carry_source: arguments.carry_source,
        debug: arguments.debug,
        ..Options::default()
    };
    let built = farjump::build::build(&options)?;
    if !built.messages.is_empty() {
        output::note(built.messages.trim_end());
    }
    show(&inspect(&built.library)?, json)
}

/// Reads TRIPLE=CC.
fn target_cc(text: &str) -> Result<(Machine, String), String> {
    let (triple, cc) = text.split_once('=').ok_or("write it as TRIPLE=CC")?;
    let target: Platform = triple.parse().map_err(|error: PlatformError| error.to_string())?;
    if target != Platform::baseline(target.machine) {
        return Err("a compiler is for all CPU levels of a machine: leave out the level".to_owned());
    }
    Ok((target.machine, cc.to_owned()))
}
