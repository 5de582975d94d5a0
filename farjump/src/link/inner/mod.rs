//! State of a connected link. [`injecting`] sends calls, [`waiting`] takes outcomes, [`control`] reads control
//! messages, [`batching`] fills frames with small calls, [`grouping`] wakes the target for several, and [`large`] sends
//! frames that exceed the link's own mailbox. [`reading`] reads the target's memory. [`event_loop`] sleeps in the
//! caller's event loop, and [`codes`] releases code of closed libraries.

mod batching;
mod codes;
mod connection;
mod control;
mod event_loop;
#[cfg(feature = "build")]
mod exchange;
mod forward;
mod grouping;
mod injecting;
mod large;
mod reading;
mod settings;
mod waiting;

use farjump_control::{PeerIdentity, Rights};
use farjump_core::cpu::Cpu;
use farjump_core::transport::ArrivalRules;

#[cfg(feature = "build")]
use super::exact::Exchanges;
use super::pending_calls::PendingCalls;
use super::sent_codes::SentCodes;
use super::{LinkPath, LinkStats};
use crate::config::LinkConfig;
use crate::link::wait::epoll::Watch;
use crate::{Error, GoneCause, Mode, WaitError};
pub(super) use connection::Connection;
use connection::TargetInfo;
use forward::Forwarding;
pub(super) use settings::Settings;
pub(super) use waiting::TURNS_TO_IDLE;

// The fields that every call uses come first, side by side.
#[repr(C)]
pub(super) struct Inner {
    stats: LinkStats,
    codes: SentCodes,
    pending: PendingCalls,
    connection: Connection,
    pub(super) settings: Settings,
    /// True while it is armed for a sleep in an event loop.
    is_watch_armed: bool,
    /// The state of a link over which a target forwards calls.
    forwarding: Option<Box<Forwarding>>,
    /// The exchanges of images that are compiled for the target's CPU, if the source wants them.
    #[cfg(feature = "build")]
    exchanges: Option<Box<Exchanges>>,
    /// The options that it was made with.
    pub(super) config: Box<LinkConfig>,
}

/// Options of an injected call, in one register.
#[derive(Clone, Copy)]
pub(super) struct Wants(u8);

impl Wants {
    const REPLY: u8 = 1;
    const CREDIT: u8 = 2;

    /// `reply` requests a reply, `credit` waits for credit.
    #[inline(always)]
    pub(super) const fn new(reply: bool, credit: bool) -> Wants {
        Wants(if reply { Self::REPLY } else { 0 } | if credit { Self::CREDIT } else { 0 })
    }

    #[inline(always)]
    fn reply(self) -> bool {
        self.0 & Self::REPLY != 0
    }

    #[inline(always)]
    fn credit(self) -> bool {
        self.0 & Self::CREDIT != 0
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Link")
            .field("address", &self.settings.address)
            .field("transport", &self.connection.target.transport)
            .field("gone", &self.connection.control.gone)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn connect(mut settings: Settings, config: LinkConfig) -> Result<Inner, Error> {
        Ok(Inner {
            stats: LinkStats::default(),
            codes: SentCodes::default(),
            pending: PendingCalls::default(),
            #[cfg(feature = "build")]
            exchanges: settings.compiler.clone().map(|compiler| Box::new(Exchanges::new(*compiler))),
            connection: settings.connect()?,
            settings,
            is_watch_armed: false,
            forwarding: None,
            config: Box::new(config),
        })
    }

    /// Connects to the target again. `watch` is the event loop's watch of the link, if there is one.
    pub(super) fn reconnect(&mut self, watch: Option<&Watch>) -> Result<(), Error> {
        self.check_process()?;
        let mut next = self.settings.connect()?;
        if let Some(watch) = watch {
            self.move_watch(watch, &next)?;
        }
        self.leave();
        let peer = self.settings.address.clone();
        let cause = GoneCause::Reconnected;
        self.pending
            .slots
            .fail_all(|| WaitError::PeerGone { peer: peer.clone(), cause: cause.clone() }.into());
        self.codes.unbind();
        #[cfg(feature = "build")]
        self.exchanges.iter_mut().for_each(|exchanges| exchanges.clear());
        // The outcomes above are news for a sleeper in an event loop.
        next.control.has_notice = true;
        self.connection = next;
        self.is_watch_armed = false;
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: Mode) -> Mode {
        // A link that compiles images looks for them in mode cached alone.
        self.codes.drop_recent();
        self.close_several();
        std::mem::replace(&mut self.settings.mode, mode)
    }

    /// Returns whether this process, and not one that forked it, made the connection.
    #[inline(always)]
    fn is_own(&self) -> bool {
        self.connection.control.owner.is_this()
    }

    /// The process that made the connection.
    pub(super) fn owner(&self) -> farjump_os::Owner {
        self.connection.control.owner
    }

    /// Checks that this is no forked child: the connection is its parent's.
    #[inline]
    fn check_process(&self) -> Result<(), Error> {
        if self.is_own() { Ok(()) } else { Err(self.forked()) }
    }

    /// Checks that this is no forked child, and that the target is not known to be gone.
    #[inline]
    fn check_alive(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.connection.control.gone.is_some() { Err(self.gone_error()) } else { Ok(()) }
    }

    /// The error of a forked child that uses its parent's link.
    #[cold]
    fn forked(&self) -> Error {
        let (peer, parent) = (self.settings.address.clone(), self.connection.control.owner.pid());
        WaitError::Forked { peer, parent }.into()
    }

    // ---- state ----

    pub(super) fn address(&self) -> &str {
        &self.settings.address
    }

    pub(super) fn stats(&self) -> LinkStats {
        self.stats
    }

    pub(super) fn transport(&self) -> &str {
        &self.connection.target.transport
    }

    pub(super) fn path(&self) -> LinkPath {
        LinkPath {
            transport: self.connection.target.transport.to_string(),
            rule: self.connection.channel.rule(),
            route: self.connection.channel.path_info(),
            passed_over: self.connection.target.passed_over.clone(),
        }
    }

    pub(super) fn rule(&self) -> ArrivalRules {
        self.connection.channel.rule()
    }

    pub(super) fn peer(&self) -> &PeerIdentity {
        self.connection.control.stream.peer()
    }

    pub(super) fn peer_cpu(&self) -> &Cpu {
        &self.connection.target.cpu
    }

    pub(super) fn epoch(&self) -> u64 {
        self.connection.target.epoch
    }

    pub(super) fn rights(&self) -> Rights {
        self.connection.target.rights
    }

    pub(super) fn max_frame(&self) -> usize {
        self.connection.channel.max_frame()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A forked child's copy shares the connection with its parent: it closes without a message.
        if self.is_own() {
            self.leave();
        }
    }
}
