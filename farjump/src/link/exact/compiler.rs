//! The compiler that a link uses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump_core::image::Machine;

/// Default of [`PeerCompiler::time_limit`].
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The compiler by which a source compiles functions for its target's CPU
/// ([`LinkBuilder::compile_for_peer`](super::super::LinkBuilder::compile_for_peer)). The defaults are those of
/// `farjump build`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct PeerCompiler {
    pub(super) cc: Option<String>,
    pub(super) target_ccs: Vec<(Machine, String)>,
    pub(super) linker: Option<PathBuf>,
    pub(super) time_limit: Duration,
}

impl Default for PeerCompiler {
    fn default() -> PeerCompiler {
        PeerCompiler { cc: None, target_ccs: Vec::new(), linker: None, time_limit: TIME_LIMIT }
    }
}

impl PeerCompiler {
    /// The default compiler.
    pub fn new() -> PeerCompiler {
        PeerCompiler::default()
    }

    /// The C compiler, with arguments if it needs some. Default: `cc`. clang compiles for other machines too.
    pub fn cc(mut self, cc: &str) -> PeerCompiler {
        self.cc = Some(cc.to_owned());
        self
    }

    /// The C compiler for targets of another machine. Default: the C compiler if it is clang, the machine's own gcc
    /// (`aarch64-linux-gnu-gcc`), `clang`.
    pub fn target_cc(mut self, machine: Machine, cc: &str) -> PeerCompiler {
        self.target_ccs.push((machine, cc.to_owned()));
        self
    }

    /// The linker that makes images, GNU ld or lld. Default: the first usable one of `ld.bfd`, `ld` and `ld.lld`.
    pub fn linker(mut self, linker: impl AsRef<Path>) -> PeerCompiler {
        self.linker = Some(linker.as_ref().to_owned());
        self
    }

    /// Limit for compiling one function. The compiler is then killed. Default: 60 seconds.
    pub fn time_limit(mut self, limit: Duration) -> PeerCompiler {
        self.time_limit = limit;
        self
    }
}
