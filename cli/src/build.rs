//! `build`: an ifunc library from sources, objects and archives.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farjump::build::Options;
use farjump::config::LinkConfig;
use farjump::inspect::inspect;
use farjump::{Cpu, Machine, Platform, PlatformError};

use crate::inspect::show;
use crate::program::config_arguments::ConfigArguments;
use crate::program::failure::Failure;
use crate::program::link_options::{QueryOptions, parse_address};
use crate::program::output;
use crate::program::units::parse_duration;
use crate::query_link;

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
pub struct Build {
    /// C or C++ sources, Rust sources, crates (a folder or its Cargo.toml), bitcode, objects, archives; or one library that
    /// carries its source
    #[arg(required = true, value_name = "SRC")]
    sources: Vec<PathBuf>,
    /// The library to write
    #[arg(short, long, value_name = "LIB.so")]
    output: PathBuf,
    /// NAME of the routines NAME_main and so on [default: from the output's name, libNAME.so or NAME.so]
    #[arg(long)]
    name: Option<String>,
    /// A platform to build an image for, TRIPLE or TRIPLE:LEVEL (x86_64-unknown-linux-gnu has the levels v2, v3,
    /// v4); may be repeated [default: this machine, any CPU]
    #[arg(long = "target", value_name = "TRIPLE[:LEVEL]")]
    targets: Vec<Platform>,
    /// Build one more image, for exactly the CPU of this target: unix:PATH, unix:@NAME or tcp:HOST:PORT. Without
    /// --target the other images are for any CPU of its machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    for_peer: Option<String>,
    /// The C compiler, with arguments if it needs some ('zig cc') [default: cc]
    #[arg(long, env = "FARJUMP_CC", hide_env = true)]
    cc: Option<String>,
    /// The C compiler for another machine; may be repeated [default: --cc if it is clang or zig, or the first of the
    /// machine's own gcc, clang, zig cc that compiles a line]
    #[arg(long = "target-cc", value_name = "TRIPLE=CC", value_parser = target_cc)]
    target_ccs: Vec<(Machine, String)>,
    /// The linker that makes images, GNU ld or lld, or `own` for farjump's own [default: the first one of ld.bfd,
    /// ld, ld.lld, own that links a line]
    #[arg(long, value_name = "LD", env = "FARJUMP_LD", hide_env = true)]
    linker: Option<PathBuf>,
    /// A flag for the compiler; may be repeated. The step that links the library gets those for linking: -l, -L, -Wl,
    /// and files
    #[arg(long = "cflag", value_name = "FLAG", allow_hyphen_values = true)]
    cflags: Vec<String>,
    /// Also put bitcode into the library, for the machine of each --target. A target without a matching image compiles
    /// it for its own CPU. Sources: C and C++ by clang or zig, single Rust files, and bitcode files
    #[arg(long)]
    bitcode: bool,
    /// Put the sources into the library, with the local headers that they include: C, C++ and single Rust files.
    /// Such a library can be SRC of a later build
    #[arg(long)]
    carry_source: bool,
    /// Add debugging information for `farjump inspect --symbols`; the image stays the same
    #[arg(short = 'g', long)]
    debug: bool,
    /// Show the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Connection to the target of --for-peer")]
    peer: PeerOptions,
}

// The connection to the target that states its CPU.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
struct PeerOptions {
    #[command(flatten)]
    link: ConfigArguments<LinkConfig, QueryOptions>,
    /// Time limit for connecting, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

impl PeerOptions {
    /// Connects to the target at `address`, and returns the CPU that it claims.
    fn cpu_of(&self, address: &str) -> Result<Cpu, Failure> {
        let link = query_link::connect(self.link.resolve()?, "farjump build", self.timeout, address)?;
        Ok(link.peer_cpu())
    }
}

/// Builds a library and shows its contents.
///
/// # Errors
/// The command line makes no sense, the target of `--for-peer` cannot be reached, or the library cannot be built.
pub fn run(arguments: Build) -> Result<(), Failure> {
    let cpu = match (&arguments.for_peer, arguments.peer.link.first()) {
        (Some(address), _) => Some(arguments.peer.cpu_of(address)?),
        (None, Some(option)) => {
            return Err(Failure::usage(format!("{option} has no effect without --for-peer: leave it out")));
        }
        (None, None) => None,
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
