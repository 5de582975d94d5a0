//! Connecting: a source's choices, and the handshake that follows.

use std::time::{Duration, Instant};

use farjump_control::{
    Control, Error as MeetError, Joined, Key, MeetRefusal, Met, PassedOver, PeerAddress, PeerIdentity,
    Rights, SourceOptions, TcpOptions, meet_target,
};
use farjump_core::channel::{Channel, Terms};
use farjump_core::frame::MAX_FRAME;
use farjump_core::image::Machine;
use farjump_core::mailbox;
use farjump_core::transport::{OpenRequest, Transport};
use farjump_core::wait::WaitPolicy;
use farjump_transports::BackendOptions;

use super::inner::Inner;
use super::{CodeMissingHandler, Link, PeerGoneHandler, RefusalHandler};
use crate::policy::Ceilings;
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

pub(super) struct Settings {
    pub(super) address: String,
    pub(super) mode: Mode,
    pub(super) send_timeout: Duration,
    pub(super) wait: WaitPolicy,
    pub(super) control_interval: Duration,
    pub(super) on_refused: Option<RefusalHandler>,
    pub(super) on_peer_gone: Option<PeerGoneHandler>,
    pub(super) on_code_missing: Option<CodeMissingHandler>,
    transports: Vec<Box<dyn Transport>>,
    backends: BackendOptions,
    /// Whether every transport of this build may be tried if the target has none of `transports`.
    any_transport: bool,
    /// Transports that were asked for and do not work on this machine.
    passed_over: Vec<PassedOver>,
    connect_timeout: Duration,
    reply_ring: usize,
    program: Option<String>,
    tcp: TcpOptions,
}

/// Result of a handshake.
pub(super) struct Linked {
    pub(super) channel: Channel,
    pub(super) control: Control,
    pub(super) machine: Machine,
    pub(super) epoch: u64,
    pub(super) transport: String,
    pub(super) limits: Ceilings,
    pub(super) rights: Rights,
    pub(super) passed_over: Vec<PassedOver>,
}

impl LinkBuilder {
    pub(super) fn new(address: &str) -> Self {
        LinkBuilder {
            settings: Settings {
                address: address.to_owned(),
                mode: Mode::Cached,
                send_timeout: Duration::from_secs(10),
                wait: crate::wait::default_wait(),
                control_interval: Duration::from_millis(1),
                on_refused: None,
                on_peer_gone: None,
                on_code_missing: None,
                transports: Vec::new(),
                backends: BackendOptions::new(),
                any_transport: false,
                passed_over: Vec::new(),
                connect_timeout: Duration::from_secs(5),
                reply_ring: DEFAULT_REPLY_RING,
                program: None,
                tcp: TcpOptions::default(),
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

    /// Whether `ucx-am` may use UCX's TCP. **A process that reaches a UCX port may then write any address of
    /// this process without any check, and the target may as long as the link lasts** (`docs/security.md`):
    /// `tcp` reaches other machines without that. Default: no. The target has to allow it too
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

    /// How the code of calls travels and runs. Default: [`Mode::Cached`]; [`Link::set_mode`] changes it.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Limit for connecting as a whole. Default: 5 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long an injection may wait for credit. Default: 10 seconds.
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.settings.send_timeout = timeout;
        self
    }

    /// Capacity for replies that the target has written and this source has not yet taken, in bytes, rounded
    /// up to a power of two. Also the largest reply. At most 2 GiB. Default: 1 MiB.
    pub fn reply_room(mut self, bytes: usize) -> Self {
        self.settings.reply_ring = bytes;
        self
    }

    /// How long a wait spins before it sleeps.
    pub fn wait_policy(mut self, policy: WaitPolicy) -> Self {
        self.settings.wait = policy;
        self
    }

    /// Shortest interval at which a link that polls or spins asks the system whether the target still exists.
    /// Default: 1 millisecond. The target says everything else in memory that the link reads anyway.
    pub fn control_interval(mut self, interval: Duration) -> Self {
        self.settings.control_interval = interval;
        self
    }

    /// The key that the target has too, for a target at `tcp:HOST:PORT`. The control connection is then
    /// encrypted with it; of the transports, only `tcp` encrypts frames (`docs/security.md`). Without a key,
    /// a link is made only to a target of the same user on this machine's loopback. No effect on Unix
    /// sockets.
    pub fn key(mut self, key: Key) -> Self {
        self.settings.tcp.key = Some(key);
        self
    }

    /// Whether frames may travel in the clear although both sides have a key, on a network that you trust.
    /// They do over transport `tcp`, if the target is willing too
    /// ([`TargetBuilder::clear`](crate::TargetBuilder::clear)). The control connection is encrypted in any
    /// case. Default: no.
    pub fn clear(mut self, clear: bool) -> Self {
        self.settings.tcp.clear = clear;
        self
    }

    /// How long the target's machine may be silent over TCP before the target counts as gone. Default: 10
    /// seconds; from 1 second to 32,767. A target that is only slow is not gone: each wait has a limit of its
    /// own.
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

impl Settings {
    /// Performs the handshake with the target at the address.
    pub(super) fn meet(&mut self) -> Result<Linked, Error> {
        let address: PeerAddress = self.address.parse()?;
        let ring = ring_len("a reply room", self.reply_ring)?;
        let region = mailbox::region_len(ring);
        let program = self.program.clone().unwrap_or_else(crate::program_name);
        let mut options = SourceOptions::new(program, OpenRequest::new(region, ring));
        options.tcp = self.tcp.clone();
        let deadline = self.connect_deadline();
        let mut met = match meet_target(&address, &mut self.transports, &options, deadline) {
            Err(MeetError::Refused { cause: MeetRefusal::NoCommonTransport, .. }) if self.any_transport => {
                // Not earlier: looking at some transports loads a library.
                let known = |name: &str| self.transports.iter().any(|own| own.name() == name);
                let usable = farjump_transports::make_usable(self.backends).into_iter();
                let more: Vec<_> = usable.filter(|one| !known(one.name())).collect();
                self.transports.extend(more);
                meet_target(&address, &mut self.transports, &options, deadline)?
            }
            met => met?,
        };
        let (machine, epoch, transport) = (met.peer_machine, met.epoch, met.transport.clone());
        let (limits, rights) = (met.limits.into(), met.rights);
        let passed_over = self.passed_over_for(&transport, std::mem::take(&mut met.passed_over));
        let Met { control, endpoint, rule, send, receive, peer, .. } = met;
        let channel = joined_channel(Joined { endpoint, rule, send, receive }, &peer)?;
        Ok(Linked { channel, control, machine, epoch, transport, limits, rights, passed_over })
    }

    /// The transports preferred to `transport`, and why they were not taken: `tried` failed to connect the
    /// two.
    fn passed_over_for(&self, transport: &str, tried: Vec<PassedOver>) -> Vec<PassedOver> {
        let better = |one: &str| farjump_transports::is_preferred(one, transport);
        let mut passed: Vec<_> = self
            .passed_over
            .iter()
            .filter(|passed| better(&passed.transport))
            .cloned()
            .chain(tried)
            .collect();
        let offered = self.transports.iter().map(|offered| offered.name());
        for name in offered.take_while(|name| *name != transport) {
            if !passed.iter().any(|passed| passed.transport == name) {
                let why = format!("{name}: the target does not have it");
                passed.push(PassedOver::new(name, why));
            }
        }
        passed
    }

    /// Time until which a machine that is silent from now on does not count as gone.
    pub(super) fn silence_deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.tcp.peer_timeout).unwrap_or_else(|| now + Duration::from_secs(3600))
    }

    /// Time by which a connection that begins now must be made.
    pub(super) fn connect_deadline(&self) -> Instant {
        Instant::now()
            .checked_add(self.connect_timeout)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// The transport of this name.
    pub(super) fn transport(&mut self, name: &str) -> Option<&mut dyn Transport> {
        let transport = self.transports.iter_mut().find(|transport| transport.name() == name)?;
        Some(transport.as_mut())
    }
}

/// Length of the ring for which `len` bytes were asked as `what`: the next power of two.
pub(crate) fn ring_len(what: &'static str, len: usize) -> Result<usize, Error> {
    match mailbox::region_len(len).checked_sub(mailbox::CONTROL_LEN) {
        Some(ring) if ring <= MAX_FRAME => Ok(ring),
        _ => Err(Error::Size { what, len, max: MAX_FRAME }),
    }
}

/// A channel over two endpoints that `peer` and this process have connected.
pub(crate) fn joined_channel(joined: Joined, peer: &PeerIdentity) -> Result<Channel, Error> {
    let Joined { endpoint, rule, send, receive } = joined;
    let terms = Terms {
        rule,
        line_whole: send.line_whole,
        send_key: send.key,
        receive_key: receive.key,
        send_limit: send.max_frame,
        receive_limit: receive.max_frame,
        send_region: send.region_len,
        receive_region: receive.region_len,
    };
    Ok(Channel::new(endpoint, terms).map_err(|error| error.with_peer(peer.to_string()))?)
}
