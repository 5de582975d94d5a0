//! The settings of a link, and the handshake that makes it.

use std::time::{Duration, Instant};

use farjump_control::{
    Handshake, HandshakeError, Joined, PassedOver, PeerAddress, RejectCause, SourceOptions, TcpOptions,
    connect_target,
};
use farjump_core::mailbox;
use farjump_core::transport::{OpenRequest, Transport};
use farjump_core::wait::WaitPolicy;
use farjump_transports::BackendOptions;

#[cfg(feature = "build")]
use super::super::exact::PeerCompiler;
use super::super::{CodeMissingHandler, PeerGoneHandler, RefusalHandler};
use super::{Connection, TargetInfo};
use crate::open_channel::{AT_ONCE, joined_channel, ring_len};
use crate::{Error, Mailbox, Mode};

/// The choices of a source.
pub(in crate::link) struct Settings {
    pub(in crate::link) address: String,
    pub(in crate::link) mode: Mode,
    pub(in crate::link) send_timeout: Duration,
    /// For calls that wait.
    pub(in crate::link) wait: WaitPolicy,
    /// For tasks, which let others run between their turns.
    pub(in crate::link) task_wait: WaitPolicy,
    /// In nanoseconds.
    pub(in crate::link) control_interval: u64,
    pub(in crate::link) on_refused: Option<RefusalHandler>,
    pub(in crate::link) on_peer_gone: Option<PeerGoneHandler>,
    pub(in crate::link) on_code_missing: Option<CodeMissingHandler>,
    pub(in crate::link) transports: Vec<Box<dyn Transport>>,
    pub(in crate::link) backends: BackendOptions,
    /// True if every transport of this build may be tried when the target has none of `transports`.
    pub(in crate::link) any_transport: bool,
    /// Requested transports that do not work on this machine.
    pub(in crate::link) passed_over: Vec<PassedOver>,
    pub(in crate::link) connect_timeout: Duration,
    pub(in crate::link) reply_ring: usize,
    /// True if the mailbox for replies has all of its memory when the link is made.
    pub(in crate::link) prefault: bool,
    pub(in crate::link) program: Option<String>,
    pub(in crate::link) tcp: TcpOptions,
    /// The compiler of images for the target's CPU, if they are wanted.
    #[cfg(feature = "build")]
    pub(in crate::link) compiler: Option<Box<PeerCompiler>>,
}

impl Settings {
    /// Performs the handshake with the target at the address.
    pub(in crate::link) fn connect(&mut self) -> Result<Connection, Error> {
        let address: PeerAddress = self.address.parse()?;
        let ring = ring_len(Mailbox::Replies, self.reply_ring)?;
        let region = mailbox::region_len(ring);
        let program = self.program.clone().unwrap_or_else(crate::program_name);
        let request = OpenRequest::new(region, ring);
        let request = if self.prefault { request } else { request.at_once(AT_ONCE) };
        let mut options = SourceOptions::new(program, request);
        options.tcp = self.tcp.clone();
        let deadline = self.connect_deadline();
        let mut handshake = match connect_target(&address, &mut self.transports, &options, deadline) {
            Err(HandshakeError::Refused { cause: RejectCause::NoCommonTransport, .. })
                if self.any_transport =>
            {
                // Not earlier: looking at some transports loads a library.
                let known = |name: &str| self.transports.iter().any(|own| own.name() == name);
                let usable = farjump_transports::make_usable(self.backends).into_iter();
                let more: Vec<_> = usable.filter(|one| !known(one.name())).collect();
                self.transports.extend(more);
                connect_target(&address, &mut self.transports, &options, deadline)?
            }
            handshake => handshake?,
        };
        let (epoch, transport) = (handshake.epoch, handshake.transport.clone());
        let (limits, rights) = (handshake.limits, handshake.rights);
        let passed_over = self.passed_over_for(&transport, std::mem::take(&mut handshake.passed_over));
        let Handshake { control, endpoint, rule, send, receive, peer, peer_cpu, .. } = handshake;
        let channel = joined_channel(Joined { endpoint, rule, send, receive }, &peer)?;
        let (cpu, transport) = (Box::new(peer_cpu), transport.into());
        let target = TargetInfo { limits, rights, epoch, transport, passed_over, cpu };
        Ok(Connection::new(channel, control, target))
    }

    /// Returns the transports preferred to `transport`, with the reasons against them: `tried` failed to connect the
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
    pub(in crate::link) fn silence_deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.tcp.peer_timeout).unwrap_or_else(|| now + Duration::from_secs(3600))
    }

    /// Time by which a connection that begins now must be made.
    pub(in crate::link) fn connect_deadline(&self) -> Instant {
        Instant::now()
            .checked_add(self.connect_timeout)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// The transport of this name.
    pub(in crate::link) fn transport(&mut self, name: &str) -> Option<&mut dyn Transport> {
        let transport = self.transports.iter_mut().find(|transport| transport.name() == name)?;
        Some(transport.as_mut())
    }
}
