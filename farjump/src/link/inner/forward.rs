//! Forwarding received calls: a target's links to its destinations.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use farjump_control::{MAX_CODE, Message, Rights};
use farjump_core::channel::{Armed, SendError};
use farjump_core::code::CodeView;
use farjump_core::frame::{Kind, Plan, PlanCode};
use farjump_core::image::{CodeId, FamilyId};
use farjump_core::transport::TransportError;
use farjump_loader::{LinkedImage, Manifest};

use super::super::forwarded::{Forwarded, Image, Wanted};
use super::super::pending_calls::{MAX_CALLS, ReplyBytes};
use super::super::send::Sent;
use super::super::sent_codes::Known;
use super::Inner;
use crate::{Error, InjectError};

/// Most pending requests of a target.
const MOST_WANTED: usize = 64;

/// The state of a link over which a target forwards calls.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// The target's requests for code or manifests that this process may get elsewhere.
    wanted: Vec<Wanted>,
    /// For code that came here, the image of its family that went to the target in its place.
    others: HashMap<CodeId, CodeId>,
    /// Whether each message brings its code.
    brings_code: bool,
}

impl Inner {
    /// Injects stored code with a payload as it is. Never waits. The token is for [`Inner::take`] if a reply
    /// is wanted.
    pub(in super::super) fn forward(&mut self, call: &Forwarded<'_>, image: Image<'_>) -> Result<u32, Error> {
        if self.connection.control.gone.is_some() || self.connection.control.leaving.is_some() {
            return Err(self.gone_error());
        }
        let index = self.codes.index_forwarded(call.linked, image)?;
        let (id, sent) = (call.linked.id(), self.codes.get(index.into()).id);
        if id != sent
            && let Some(forwarding) = &mut self.forwarding
        {
            forwarding.others.insert(id, sent);
        }
        let token = self
            .pending
            .slots
            .token(index, call.wants_reply)
            .ok_or(Error::Inject(InjectError::TooManyCalls { max: MAX_CALLS }))?;
        let code = self.codes.get(index.into());
        let (align_log2, name) = (code.align_log2, call.linked.name());
        let mut plan = Plan {
            kind: Kind::Call,
            wants_reply: call.wants_reply,
            alone: false,
            travelled: true,
            index,
            token,
            align_log2,
            code: None,
        };
        let binds = code.known != Known::Bound || self.brings_code();
        if binds {
            let bytes = match image {
                Image::Bound(_) => &[],
                Image::Own => call.linked.image(),
                Image::Stored(other) => other.image(),
                Image::Passed(other) => other.bytes(),
            };
            // Even if this target may bring no code, its destination may have it in its store.
            let brings = self.connection.target.rights.contains(Rights::INJECT) && !bytes.is_empty();
            plan.kind = if brings { Kind::CallCode } else { Kind::CallId };
            plan.code = Some(PlanCode {
                image: if brings { bytes } else { &[] },
                id: code.id,
                epoch: self.connection.target.epoch,
                name,
                family: call.family,
            });
        }
        match self.connection.channel.send_bytes(&plan, call.payload) {
            Ok(()) => {
                let code = plan.code.map_or(0, |code| code.image.len());
                self.sent(index.into(), Sent { payload: call.payload.len(), code, binds });
                Ok(token)
            }
            Err(error) => {
                self.pending.slots.take_back(token);
                Err(match error {
                    SendError::Full => Error::Inject(InjectError::Full),
                    SendError::TooLarge { len, max } => {
                        Error::Inject(InjectError::TooLarge { ifunc: name.into(), len, max })
                    }
                    SendError::Failed(error) => self.broken(&error),
                })
            }
        }
    }

    /// Returns the image by which stored code travels to the target, for the next [`Inner::forward`]. `None` if the
    /// target takes another image of its family.
    #[inline]
    pub(in super::super) fn forwarded_image(&mut self, linked: &LinkedImage) -> Option<Image<'static>> {
        self.release_closed();
        let id = linked.id();
        let other = || self.forwarding.as_ref()?.others.get(&id);
        let brings_code = self.brings_code();
        match self.codes.find(&id).or_else(|| self.codes.find(other()?)) {
            Some((index, Known::Bound)) if !brings_code => Some(Image::Bound(index)),
            _ => self.image_unbound(linked),
        }
    }

    /// Returns whether each message brings its code.
    #[inline]
    fn brings_code(&self) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| forwarding.brings_code)
    }

    #[cold]
    fn image_unbound(&self, linked: &LinkedImage) -> Option<Image<'static>> {
        // It was checked before it was placed.
        let view = CodeView::new_checked(linked.image()).ok()?;
        self.peer_cpu().takes(&view).then_some(Image::Own)
    }

    /// Keeps the target's requests that this link cannot serve, instead of responding that it has nothing. If
    /// `brings_code`, each message carries its code.
    pub(in super::super) fn prepare_forwarding(&mut self, brings_code: bool) {
        self.forwarding = Some(Box::new(Forwarding { brings_code, ..Forwarding::default() }));
    }

    pub(in super::super) fn take_wanted(&mut self) -> Vec<Wanted> {
        self.forwarding.as_mut().map(|forwarding| std::mem::take(&mut forwarding.wanted)).unwrap_or_default()
    }

    /// Notes this request of the target; `false` if the response is that this process has none.
    pub(super) fn note_wanted(&mut self, wanted: Wanted) -> bool {
        match &mut self.forwarding {
            // A target makes one request for each of its waiting frames, so very few.
            Some(forwarding) if forwarding.wanted.len() < MOST_WANTED => {
                forwarding.wanted.push(wanted);
                true
            }
            _ => false,
        }
    }

    pub(in super::super) fn respond_with_code(
        &mut self,
        id: CodeId,
        image: Option<&[u8]>,
    ) -> Result<(), Error> {
        // Code above the target's limit is not sent: the frame is refused, and the next call fails here.
        let most = self.connection.target.limits.image.min(MAX_CODE);
        let Some(image) = image.filter(|image| image.len() <= most) else {
            return self.send_control(&Message::NoCode { id: id.0 });
        };
        self.stats.code_bytes += image.len() as u64;
        self.send_control(&Message::Code { id: id.0, image: image.to_vec() })
    }

    pub(in super::super) fn respond_with_manifest(
        &mut self,
        family: FamilyId,
        manifest: Option<&Manifest>,
    ) -> Result<(), Error> {
        let FamilyId(family) = family;
        let text = manifest.map(|manifest| manifest.text().as_bytes().to_vec());
        let none = Message::NoManifest { family };
        self.send_control(&text.map_or(none, |text| Message::Manifest { family, text }))
    }

    /// Takes the outcome of a call, if it has come; the token is then void.
    pub(in super::super) fn take(&mut self, token: u32) -> Option<Result<ReplyBytes, Error>> {
        self.pending.slots.take(token)
    }

    /// Prepares to sleep on [`Inner::doorbell`] and [`Inner::control`]. [`Inner::disarm`] follows in any
    /// case.
    pub(in super::super) fn arm(&mut self) -> Result<Armed, TransportError> {
        let armed = self.connection.channel.arm()?;
        Ok(if self.connection.control.unread { Armed::Ready } else { armed })
    }

    pub(in super::super) fn disarm(&mut self) -> Result<(), TransportError> {
        self.connection.channel.disarm()
    }

    pub(in super::super) fn control(&self) -> BorrowedFd<'_> {
        self.connection.control.stream.as_fd()
    }

    /// Returns whether to watch the control connection for writability.
    pub(in super::super) fn wants_write(&self) -> bool {
        self.connection.control.stream.wants_write()
    }

    /// Returns whether to watch the doorbell for writability.
    pub(in super::super) fn doorbell_wants_write(&self) -> bool {
        self.connection.channel.wants_write() && self.connection.control.leaving.is_none()
    }

    /// Returns whether the control connection has ended, and the channel not yet.
    pub(in super::super) fn is_draining(&self) -> bool {
        self.connection.control.leaving.is_some()
    }

    /// The doorbell's descriptor; the same for the life of the channel.
    pub(in super::super) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.connection.channel.descriptor()
    }
}
