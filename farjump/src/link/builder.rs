//! A source's choices before it connects.

use std::time::Duration;

use farjump_control::{Key, PeerAddress, TcpOptions};
use farjump_core::transport::Transport;
use farjump_core::wait::WaitPolicy;
use farjump_transports::BackendOptions;

use super::Link;
#[cfg(feature = "build")]
use super::exact::PeerCompiler;
use super::inner::{Inner, Settings};
use crate::transports::transports_for;
use crate::{Error, Mode, Refusal};

/// Default length of the reply ring, in bytes.
const DEFAULT_REPLY_RING: usize = 1 << 20;

/// A connection to be made. Every choice has a default that suits a program on the same machine as its
/// target.
#[must_use]
pub struct LinkBuilder {
    settings: Settings,
    transport: Option<String>,
}

impl std::fmt::Debug for LinkBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LinkBuilder").field("address", &self.settings.address).finish_non_exhaustive()
    }
}

impl LinkBuilder {
    pub(super) fn new(address: &str) -> Self {
        LinkBuilder {
            settings: Settings {
                address: address.to_owned(),
                mode: Mode::Cached,
                send_timeout: Duration::from_secs(10),
                wait: crate::wait::wait_for_outcome(),
                task_wait: crate::wait::default_wait(),
                control_interval: crate::wait::nanoseconds_of(Duration::from_millis(1)),
                on_refused: None,
                on_peer_gone: None,
                on_code_missing: None,
                transports: Vec::new(),
                backends: BackendOptions::new(),
                any_transport: false,
                passed_over: Vec::new(),
                connect_timeout: Duration::from_secs(5),
                reply_ring: DEFAULT_REPLY_RING,
                prefault: false,
                program: None,
                tcp: TcpOptions::default(),
                #[cfg(feature = "build")]
                compiler: None,
            },
            transport: None,
        }
    }

    /// Uses this transport and no other, by the name that `farjump transports` shows; `ucx` stands for the
    /// better UCX transport that connects both processes. Default: `shm` where the target has it, else any
    /// that both have.
    pub fn transport(mut self, name: &str) -> Self {
        self.transport = Some(name.to_owned());
        self
    }

    /// Sets whether `ucx-am` may use UCX's TCP. **A process that reaches a UCX port may then write any address of this
    /// process without any check, and the target may as long as the link lasts** (`docs/security.md`): `tcp` reaches
    /// other machines without that. Default: no. The target has to allow it too
    /// ([`TargetBuilder::ucx_tcp`](crate::TargetBuilder::ucx_tcp)).
    pub fn ucx_tcp(mut self, allowed: bool) -> Self {
        self.settings.backends = self.settings.backends.with_ucx_tcp(allowed);
        self
    }

    /// Adds a transport of the caller's. Added transports come before the built-in ones in the source's
    /// preferences.
    pub fn with_transport(mut self, transport: Box<dyn Transport>) -> Self {
        self.settings.transports.push(transport);
        self
    }

    /// Sets the mode in which the code of calls travels and runs. Default: [`Mode::Cached`]; [`Link::set_mode`] changes
    /// it.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Limit for connecting as a whole. Default: 5 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Longest time that an injection waits for credit. Default: 10 seconds.
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.settings.send_timeout = timeout;
        self
    }

    /// Capacity for replies that the target has written and this source has not yet taken, in bytes, rounded
    /// up to a power of two. Also the largest reply. At most 2 GiB. Default: 1 MiB.
    pub fn reply_mailbox_size(mut self, bytes: usize) -> Self {
        self.settings.reply_ring = bytes;
        self
    }

    /// Sets whether the mailbox for replies has all of its memory when the link is made. Default: no; as
    /// [`TargetBuilder::prefault`](crate::TargetBuilder::prefault).
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.settings.prefault = prefault;
        self
    }

    /// The spinning of a wait before it sleeps. Default: 4,000 turns that spin, 6,000 that pause (1,000 in tasks), some 150 us
    /// together, and 16 that yield the processor. On a machine with one processor it yields after 20 turns. Where this
    /// machine's timer sends no events, turns that wait for one ([`WaitPolicy::events_only`]) pause instead.
    pub fn wait_policy(mut self, policy: WaitPolicy) -> Self {
        self.settings.wait = crate::wait::followed_here(policy);
        self.settings.task_wait = self.settings.wait;
        self
    }

    /// Shortest interval at which a link that polls or spins checks with the system whether the target exists.
    /// Default: 1 millisecond. The target reports everything else in memory that the link reads anyway.
    pub fn control_interval(mut self, interval: Duration) -> Self {
        self.settings.control_interval = crate::wait::nanoseconds_of(interval);
        self
    }

    /// Sets the key that this process shares with a target at `tcp:HOST:PORT`. It encrypts the control connection; of
    /// the transports, only `tcp` encrypts frames (`docs/security.md`). Without a key, a link connects only to a target
    /// of the same user on this machine's loopback. No effect on Unix sockets.
    pub fn key(mut self, key: Key) -> Self {
        self.settings.tcp.key = Some(key);
        self
    }

    /// Sets whether frames may travel in the clear although both processes have a key, on a network that you trust.
    /// They do over transport `tcp`, if the target allows it too
    /// ([`TargetBuilder::clear`](crate::TargetBuilder::clear)). The control connection is encrypted in any case.
    /// Default: no.
    pub fn clear(mut self, clear: bool) -> Self {
        self.settings.tcp.clear = clear;
        self
    }

    /// Longest silence of the target's machine over TCP before the target counts as gone. Default: 10 seconds; from 1
    /// second to 32,767. A target that is only slow is not gone: each wait has its own limit.
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.settings.tcp.peer_timeout = timeout;
        self
    }

    /// The name shown to users of the target. Default: the program's own.
    pub fn program(mut self, name: &str) -> Self {
        self.settings.program = Some(name.to_owned());
        self
    }

    /// Runs `handler` for each frame sent with [`Link::send`] that the target refuses. It must not use the
    /// link.
    pub fn on_refused(mut self, handler: impl FnMut(&Refusal) + Send + 'static) -> Self {
        self.settings.on_refused = Some(Box::new(handler));
        self
    }

    /// Runs `handler` once when the target is gone, with the reason. It must not use the link.
    pub fn on_peer_gone(mut self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.settings.on_peer_gone = Some(Box::new(handler));
        self
    }

    /// Runs `handler` with an ifunc's name when the target requests its code again. It must not use the link.
    pub fn on_code_missing(mut self, handler: impl FnMut(&str) + Send + 'static) -> Self {
        self.settings.on_code_missing = Some(Box::new(handler));
        self
    }

    /// Compiles functions for exactly the target's CPU, in the background: those whose library carries its source
    /// (`farjump build --carry-source`) and whose code has no writable variables. Default: no.
    ///
    /// The first call of a library in mode cached starts the compiler. Calls use the image that the library carries
    /// until the target has the compiled one; no call waits for it. If the compilation fails, or the target refuses the
    /// image, calls keep the carried image ([`Link::compiled_image`] has the reason). The compiled image belongs to no
    /// family: a target with a list of allowed code has to allow its id.
    ///
    /// A process compiles once for each source and CPU. The end of the last link that wants an image, and the end of
    /// the process, end its compiler.
    ///
    /// **The library's author chooses files and flags of the compiler, which can make it run programs in this process's
    /// name.** Otherwise a library that is only opened runs no code here.
    #[cfg(feature = "build")]
    pub fn compile_for_peer(mut self, compiler: PeerCompiler) -> Self {
        self.settings.compiler = Some(Box::new(compiler));
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the address is malformed, no process listens there, the target rejects the link, or the two have
    /// no transport in common.
    pub fn connect(mut self) -> Result<Link, Error> {
        let address: PeerAddress = self.settings.address.parse()?;
        let own = std::mem::take(&mut self.settings.transports);
        let (only, backends) = (self.transport.as_deref(), self.settings.backends);
        let chosen = transports_for(&address, only, own, backends)?;
        self.settings.transports = chosen.transports;
        self.settings.passed_over = chosen.passed_over;
        self.settings.any_transport = self.transport.is_none();
        Ok(Link::new(Inner::connect(self.settings)?))
    }
}
