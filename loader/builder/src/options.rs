//! Inputs and settings of a build, and its images.

use std::path::PathBuf;

use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, Machine, Platform};
use farjump_loader::library::bundle::Sizes;

use crate::tools::supervisor::Supervisor;

/// Inputs and settings of a build.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// C sources (`.c`, `.s`, `.S`), C++ sources (`.cc`, `.cpp`, `.cxx`, `.C`), Rust sources (`.rs`), crates (a folder
    /// or its `Cargo.toml`), ELF objects, archives, LLVM bitcode; in any mixture. Or one library that carries its
    /// source. Objects must be position-independent. From objects compiled without `-ffunction-sections` more code
    /// travels than necessary.
    pub inputs: Vec<PathBuf>,
    /// The library to write. An existing file is replaced atomically on success, and kept otherwise.
    pub output: PathBuf,
    /// NAME of the routines. `None`: from the output's, `libNAME.so` or `NAME.so`.
    pub name: Option<String>,
    /// The platforms to build images for, each once; if there are none, the baseline of this machine, or that of
    /// [`Options::cpu`]. Sources are compiled for each. Of objects and archives each takes those for its machine.
    pub targets: Vec<Platform>,
    /// A CPU to build one more image for, as a peer sends it. The image may use each of its features that the compiler
    /// knows, names them, and runs on CPUs that have them all.
    pub cpu: Option<Cpu>,
    /// The C compiler driver: a program, or a program and arguments (`zig cc`). `None`: `cc`. C++ uses the driver
    /// that belongs to it (`g++` to `gcc`, `clang++` to `clang`). If it is clang or zig, it compiles for other
    /// machines too.
    pub cc: Option<String>,
    /// Drivers for other machines. If none is named for a machine, the first one that compiles a line. The order is
    /// `cc`, if it is clang or zig, the machine's own gcc (`aarch64-linux-gnu-gcc`), `clang`, and `zig cc`.
    pub target_ccs: Vec<(Machine, String)>,
    /// Flags for the compiler, after farjump's own (which contain `-Os`). Those that concern the link (`-l`, `-L`,
    /// `-Wl,…`, files) also reach the link of the library, after the objects, so that `-lz` works for the payload
    /// routines. Shared libraries among them that define imports of the image are its *wanted libraries*, except the C
    /// library's own. Rust ignores them.
    pub cflags: Vec<String>,
    /// The linker that makes images: GNU ld or lld. `None`: the one in the environment variable `FARJUMP_LD`, otherwise
    /// the first one of `ld.bfd`, `ld`, `ld.lld` that links a line. For other machines it is used if it links for them;
    /// otherwise their own GNU ld (`aarch64-linux-gnu-ld`) or `ld.lld`. [`OWN`](crate::OWN), or none of these: farjump's
    /// own.
    pub linker: Option<PathBuf>,
    /// Whether the library carries its source: C and C++ files with the author's headers that they include, and single
    /// Rust files. Such a library can be the only input of a build, and then stands for its source.
    pub carry_source: bool,
    /// Whether compiled code gets debugging information: lines, types and variables. The image stays the
    /// same; the library's file gets larger. Crates are compiled as their release profile says.
    pub debug: bool,
    /// Whether the library also carries bitcode for the machine of each target. Inputs must be C, C++, Rust or bitcode
    /// files. For C and C++ there must be a compiler for bitcode: `cc`, if it is clang or zig, otherwise `clang` or
    /// `zig cc`.
    pub bitcode: bool,
    /// Runs the compilers and linkers. By default nothing bounds them.
    pub supervisor: Supervisor,
}

/// An image that was built.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// The platform that it is for; if it is for one CPU, that of the CPU.
    pub target: Platform,
    /// The CPU features that it needs, if it is for one CPU; otherwise none.
    pub features: Vec<String>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Sizes of its parts.
    pub sizes: Sizes,
    /// Its code id.
    pub id: CodeId,
    /// Sonames of its wanted libraries.
    pub wanted: Vec<String>,
    /// The version text of the linker that made it; empty for bitcode.
    pub linker: String,
    /// For bitcode, the major version of the LLVM that wrote it, 0 if that is not known; `None` for images.
    pub llvm: Option<u16>,
}
