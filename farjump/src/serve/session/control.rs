//! Messages of the control connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use farjump_control::{Control, DeferredFd, HandshakeError, LingeringPeer, Message, PeerIdentity, Rights};
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::Manifest;

use super::{End, Session, Shared, Stop, code_missing, cut};
use crate::Error;
use crate::link::Wanted;
use crate::principals::Principal;
use crate::serve::epoll::{Event, Watch};

/// Control messages that are taken from one source in a turn.
const MESSAGES: usize = 8;

/// The control connection of a session, and the source at its other end.
pub(in crate::serve) struct SourceControl {
    /// True if the source is gone: it takes no replies and sends no code.
    source_gone: bool,
    /// True if control messages may be here that were not taken.
    unread: bool,
    /// Whether the connection is watched for writability.
    watches_write: bool,
    /// The time until which frames of a gone source are still taken, and the reason why it is gone.
    leaving: Option<Box<(Instant, String)>>,
    /// Refusals sent on this link.
    refusals_sent: u64,
    /// The principal of its calls. The right to call is among its rights: without that there is no link.
    pub(in crate::serve) principal: Arc<Principal>,
    /// Its process.
    peer: Arc<PeerIdentity>,
    /// The peer in words for users, as the origin of its code.
    pub(super) origin: Arc<str>,
    connection: Control,
}

impl SourceControl {
    pub(in crate::serve) fn new(connection: Control, principal: Arc<Principal>) -> SourceControl {
        let peer = principal.peer().map_or_else(|| Arc::new(connection.peer().clone()), Arc::clone);
        SourceControl {
            source_gone: false,
            unread: false,
            watches_write: false,
            leaving: None,
            refusals_sent: 0,
            principal,
            origin: peer.to_string().into(),
            peer,
            connection,
        }
    }

    /// Ends the connection in this process ([`Control::linger`]).
    pub(super) fn linger(self) -> Option<LingeringPeer> {
        self.connection.linger()
    }

    /// Sends a message, unless the source is gone.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), Stop> {
        if self.source_gone { Ok(()) } else { Ok(self.connection.send(message, &[])?) }
    }

    /// Sends a message with descriptors.
    pub(super) fn send_with(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), HandshakeError> {
        self.connection.send(message, descriptors)
    }

    /// Sends a refusal, unless the source is gone.
    pub(super) fn send_refusal(&mut self, message: &Message) -> Result<(), Stop> {
        self.refusals_sent += 1;
        self.send(message)
    }

    /// Refusals sent on this link. They travel beside the frames: by their number the source knows when it
    /// has them all.
    pub(super) fn refusals_sent(&self) -> u64 {
        self.refusals_sent
    }

    /// Takes a control message, if one is here.
    fn recv(&mut self) -> Result<Option<(Message, Vec<DeferredFd>)>, Stop> {
        // Until none is left: messages read along with the last one taken are here, where no descriptor
        // reports them.
        self.unread = true;
        let message = self.connection.recv()?;
        self.unread = message.is_some();
        Ok(message)
    }

    /// Sends queued messages as far as the connection takes them.
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        if self.connection.wants_write() { Ok(self.connection.flush()?) } else { Ok(()) }
    }

    /// Returns whether messages may be here that were not taken yet.
    pub(in crate::serve) fn has_unread(&self) -> bool {
        self.unread
    }

    /// Returns whether messages to the source are queued.
    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns whether the source is gone: it takes no replies and sends no code.
    #[inline]
    pub(super) fn is_source_gone(&self) -> bool {
        self.source_gone
    }

    /// Returns whether the source is gone, and the channel may still bring frames sent before.
    #[inline]
    pub(in crate::serve) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Returns whether the channel has taken too long to bring the rest.
    pub(in crate::serve) fn is_late(&self, now: Instant) -> bool {
        self.leaving.as_deref().is_some_and(|(until, _)| *until <= now)
    }

    /// The reason why the source is gone, from its session's `end` or an earlier cause.
    pub(in crate::serve) fn reason(&self, end: &End) -> String {
        match (self.leaving.as_deref(), end) {
            (Some((_, why)), _) | (None, End::Gone(why, _)) => why.clone(),
            _ => "it closed the link".to_owned(),
        }
    }

    /// The process of the source.
    pub(in crate::serve) fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// The rights of the source.
    pub(in crate::serve) fn rights(&self) -> Rights {
        self.principal.rights()
    }

    /// Returns whether it came by a key.
    pub(in crate::serve) fn has_key(&self) -> bool {
        self.principal.named_key().is_some()
    }

    /// Watches the connection, which is the session's `id`, for writability while messages are queued. The connection
    /// of a source that is gone is not watched.
    pub(in crate::serve) fn rewatch(&mut self, id: u64, watch: &Watch) -> Result<(), Error> {
        if self.is_leaving() {
            return Ok(());
        }
        let wanted = self.connection.wants_write();
        watch.watch_write(self.connection.as_fd(), Event::Control(id), wanted, &mut self.watches_write)
    }
}

impl AsFd for SourceControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Session {
    /// Takes no more frames until the messages to the source have been sent.
    pub(super) fn await_reading(&mut self) {
        // Nothing waits for a gone source to read.
        if self.control.wants_write() && !self.control.source_gone {
            self.head.block_on_reading();
        }
    }

    /// Sends a message and sets a notice, so that the source reads it now.
    pub(super) fn notify(&mut self, message: &Message) -> Result<(), Stop> {
        self.control.send(message)?;
        self.set_notice()
    }

    /// Sets a notice, unless the source is gone.
    pub(super) fn set_notice(&mut self) -> Result<(), Stop> {
        if self.control.source_gone { Ok(()) } else { Ok(self.channel.notify()?) }
    }

    /// Announces the end of the link. Best effort: a source that does not read learns it from the end of the
    /// connection.
    pub(in crate::serve) fn close(&mut self, why: &str) {
        drop(self.control.connection.send(&Message::Closing { text: why.to_owned() }, &[]));
        drop(self.channel.notify());
    }

    /// Marks the source gone: it takes no replies and sends no code. Frames that it sent before are still to
    /// be run.
    pub(in crate::serve) fn depart(&mut self) {
        self.control.source_gone = true;
        self.head.wait_no_longer(&mut self.codes.table.budget);
    }

    /// Marks the source gone for the reason `why`; the channel may still bring frames sent before, until
    /// `until`.
    pub(in crate::serve) fn leave(&mut self, until: Instant, why: String) {
        self.depart();
        self.control.unread = false;
        self.control.leaving = Some(Box::new((until, why)));
    }

    /// Takes control messages.
    pub(in crate::serve) fn read_control(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        if self.control.is_leaving() {
            return Ok(());
        }
        for _ in 0..MESSAGES {
            let Some((message, descriptors)) = self.control.recv()? else { break };
            match message {
                Message::Code { id, image } if self.head.awaits_code(&CodeId(id)) => {
                    self.head.take_code(CodeId(id), image);
                }
                Message::NoCode { id } if self.head.awaits_code(&CodeId(id)) => {
                    self.head.continue_without_code();
                    self.codes.table.withhold(&CodeId(id), &code_missing());
                }
                Message::Manifest { family, text } if self.head.awaits_manifest(&FamilyId(family)) => {
                    self.take_manifest(FamilyId(family), &text, shared);
                }
                Message::NoManifest { family } if self.head.awaits_manifest(&FamilyId(family)) => {
                    self.head.settle_manifest();
                }
                Message::Code { id, image } if self.has_requested(Wanted::Code(CodeId(id))) => {
                    self.take_requested(Wanted::Code(CodeId(id)), Some(image), shared);
                }
                Message::NoCode { id } if self.has_requested(Wanted::Code(CodeId(id))) => {
                    self.take_requested(Wanted::Code(CodeId(id)), None, shared);
                }
                Message::Manifest { family, text }
                    if self.has_requested(Wanted::Manifest(FamilyId(family))) =>
                {
                    self.take_requested(Wanted::Manifest(FamilyId(family)), Some(text), shared);
                }
                Message::NoManifest { family } if self.has_requested(Wanted::Manifest(FamilyId(family))) => {
                    self.take_requested(Wanted::Manifest(FamilyId(family)), None, shared);
                }
                Message::Bye => return Err(End::Bye.into()),
                Message::LargeRequest { frame, payload } => self.offer_large(frame, payload, shared)?,
                Message::LargeAccept { endpoint } => self.accept_large(endpoint, descriptors)?,
                Message::LargeRelease => self.shrink()?,
                other => return Err(cut(format_args!("its source sent {} unasked", other.name()))),
            }
        }
        self.control.flush()
    }

    /// Returns whether the source has a request for this, to forward it.
    fn has_requested(&self, wanted: Wanted) -> bool {
        self.forward_state.requested.contains(&wanted)
    }

    /// Takes the manifest that a frame waits for. One that is damaged, or of another family, counts as none.
    fn take_manifest(&mut self, family: FamilyId, text: &[u8], shared: &mut Shared) {
        match Manifest::parse(text) {
            Ok(manifest) if manifest.id() == family => shared.executor.policy.learn(&manifest),
            Ok(manifest) => {
                log::warn!(
                    "{}: sent the manifest of family {} for that of {family}",
                    self.control.peer(),
                    manifest.id()
                );
            }
            Err(error) => {
                log::warn!("{}: sent for the manifest of family {family}: {error}", self.control.peer())
            }
        }
        self.head.settle_manifest();
    }
}
