//! Making the frame of a call: the payload routines run right at the bytes' destination.

use std::mem::MaybeUninit;
use std::time::Duration;

use farjump_control::Rights;
use farjump_core::channel::{Channel, FrameTemplate, Line, SendError};
use farjump_core::frame::{
    CODE_HEADER_LEN, DEFAULT_ALIGN_LOG2, INLINE_PAYLOAD, Kind, LINE, MAX_NAME, Plan, PlanCode, TRAILER_LEN,
};
use farjump_core::image::CodeId;
use farjump_loader::Library;

use super::Deadline;
use super::sent_codes::{Code, Known};
use crate::{Error, InjectError, Mode, Part};

/// Lies behind the payload while `NAME_payload_init` runs. A change shows that the routine wrote too far.
const CANARY: u64 = 0x66f5_0c7a_91d3_e82b;
pub(crate) const CANARY_LEN: usize = 8;

/// One call to be sent.
pub(super) struct Call<'a> {
    pub(super) library: &'a Library,
    pub(super) args: &'a [u8],
    /// The library's limit for the payload of `args`, in bytes.
    pub(super) max: usize,
    pub(super) index: u16,
    pub(super) token: u32,
    pub(super) wants_reply: bool,
    /// Whether no other call is pending.
    pub(super) alone: bool,
    pub(super) mode: Mode,
    pub(super) epoch: u64,
    /// Time limit of waiting for credit, or for a backend to take it; zero for no wait.
    pub(super) patience: Duration,
    /// Longest payload and longest image that the target takes.
    pub(super) max_payload: usize,
    pub(super) max_image: usize,
    /// This source's rights.
    pub(super) rights: Rights,
}

/// A call that was sent.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) payload: usize,
    pub(super) code: usize,
    /// True if the code index stands for the code from now on.
    pub(super) binds: bool,
}

/// The reason why a call was not sent.
pub(super) enum Failed {
    Send(SendError),
    Other(Error),
}

impl From<SendError> for Failed {
    fn from(error: SendError) -> Self {
        Failed::Send(error)
    }
}

impl From<Box<Error>> for Failed {
    fn from(error: Box<Error>) -> Self {
        Failed::Other(*error)
    }
}

impl Call<'_> {
    /// Sends the call if there is credit.
    pub(super) fn send(&self, channel: &mut Channel, code: &Code) -> Result<Sent, Failed> {
        let max = self.max;
        let plan = Plan {
            kind: Kind::Call,
            wants_reply: self.wants_reply,
            alone: self.alone,
            travelled: false,
            index: self.index,
            token: self.token,
            align_log2: code.align_log2,
            code: None,
        };
        let Some((kind, image, id)) = self.named(code) else { return self.send_frame(channel, &plan, max) };
        if image.len() > self.max_image {
            return Err(self.over_limit(Part::Image, image.len(), self.max_image));
        }
        let named = self.plan_code(kind, image, id, code);
        let sent = self.send_frame(channel, &Plan { kind, code: Some(named), ..plan }, max)?;
        Ok(Sent { code: image.len(), binds: matches!(kind, Kind::CallCode | Kind::CallId), ..sent })
    }

    /// The kind of a frame that names code, and the image and id that travel in it; `None` if the code index
    /// suffices.
    fn named<'c>(&self, code: &'c Code) -> Option<(Kind, &'c [u8], CodeId)> {
        match (self.mode, code.known) {
            (Mode::Cached, Known::Bound) => None,
            (Mode::Local, _) => Some((Kind::CallLocal, &[], CodeId([0; 16]))),
            (Mode::InPlace, _) => Some((Kind::CallInPlace, code.library_image(), code.id)),
            // A source that may bring no code can only name stored code.
            (Mode::Cached, Known::Nothing) if !self.rights.contains(Rights::INJECT) => {
                Some((Kind::CallId, &[], code.id))
            }
            (Mode::Cached, Known::Perhaps) => Some((Kind::CallId, &[], code.id)),
            _ => Some((Kind::CallCode, code.library_image(), code.id)),
        }
    }

    #[inline(always)]
    fn plan_code<'a>(&'a self, kind: Kind, image: &'a [u8], id: CodeId, code: &'a Code) -> PlanCode<'a> {
        // The target keeps no code that runs in place, and has its own for its own functions.
        let family = code.family().filter(|_| matches!(kind, Kind::CallCode | Kind::CallId));
        PlanCode { image, id, epoch: self.epoch, name: self.library.name(), family }
    }

    /// The frame template of this code, in a mode in which all its calls send the same code part.
    pub(super) fn template(&self, channel: &Channel, code: &Code) -> Option<FrameTemplate> {
        if !matches!(self.mode, Mode::Always | Mode::Local) {
            return None;
        }
        let (kind, image, id) = self.named(code)?;
        let code_part = self.plan_code(kind, image, id, code);
        channel.template(&Plan {
            kind,
            wants_reply: false,
            alone: false,
            travelled: false,
            index: self.index,
            token: 0,
            align_log2: code.align_log2,
            code: Some(code_part),
        })
    }

    /// Greatest length of its payload and of its frame, in bytes.
    pub(super) fn extent(&self, code: &Code) -> (usize, usize) {
        let image = self.named(code).map_or(0, |(_, image, _)| image.len());
        // Alignment takes less than one alignment each for image, payload and end, wherever the frame lies.
        let around = CODE_HEADER_LEN + MAX_NAME + TRAILER_LEN + CANARY_LEN + 2 * LINE;
        let align = 1 << code.align_log2.max(DEFAULT_ALIGN_LOG2);
        (self.max, self.max.saturating_add(image).saturating_add(around + align))
    }

    fn send_frame(&self, channel: &mut Channel, plan: &Plan<'_>, max: usize) -> Result<Sent, Failed> {
        if self.library.payload_is_args()
            && self.args.len() <= self.max_payload
            && let Some(sent) = channel.send_beside(plan, self.args)
        {
            sent?;
            return Ok(Sent { payload: self.args.len(), code: 0, binds: false });
        }
        // Space for the canary too; it does not travel, because the frame ends where the payload does.
        let space = channel.reserve(plan, max.saturating_add(CANARY_LEN))?;
        // SAFETY: the channel lends `max + CANARY_LEN` bytes at `payload` until `commit`.
        let used = unsafe { run_payload_init(self.library, space.payload().as_ptr(), max, self.args)? };
        if used > self.max_payload {
            return Err(self.over_limit(Part::Payload, used, self.max_payload));
        }
        let mut sent = space.commit(plan, used);
        let mut deadline = None;
        while let Err(error) = sent {
            // The frame is kept; only progress empties the backend's queue.
            let deadline = deadline.get_or_insert_with(|| Deadline::after(self.patience));
            match error {
                SendError::Full if !deadline.passed() => {
                    channel.progress(false).map_err(SendError::Failed)?;
                    let Some(space) = channel.kept() else { return Err(error.into()) };
                    sent = space.commit(plan, used);
                }
                error => return Err(error.into()),
            }
        }
        Ok(Sent { payload: used, code: 0, binds: false })
    }

    #[cold]
    fn over_limit(&self, part: Part, len: usize, max: usize) -> Failed {
        Failed::Other(Error::Inject(InjectError::OverLimit {
            ifunc: self.library.name().into(),
            part,
            len,
            max: max as u64,
        }))
    }
}

/// Longest payload that is made right in the line, in bytes: behind it there is space for the canary.
const IN_PLACE: usize = INLINE_PAYLOAD - CANARY_LEN;

/// Writes the payload of `library` for `args`, of at most `max` bytes, into a line. Returns its length.
#[inline(always)]
pub(super) fn make_payload(
    library: &Library,
    args: &[u8],
    max: usize,
    line: &Line<'_>,
) -> Result<usize, Box<Error>> {
    if max <= IN_PLACE {
        // SAFETY: the line lends 40 bytes, which hold `max` and a canary's.
        unsafe { run_payload_init(library, line.payload().as_ptr(), max, args) }
    } else {
        make_payload_aside(library, args, max, line)
    }
}

/// A buffer for a payload that then moves into a line. The field behind it takes the canary, and keeps a
/// routine that writes a little too far from overwriting the caller's variables.
#[repr(C)]
struct Aside {
    payload: [u64; INLINE_PAYLOAD / 8],
    behind: MaybeUninit<[u64; 32]>,
}

/// As [`make_payload`], for payloads behind which the line has no space for the canary.
#[inline(never)]
fn make_payload_aside(
    library: &Library,
    args: &[u8],
    max: usize,
    line: &Line<'_>,
) -> Result<usize, Box<Error>> {
    let mut aside = Aside { payload: [0; INLINE_PAYLOAD / 8], behind: MaybeUninit::uninit() };
    let max = max.min(INLINE_PAYLOAD);
    // SAFETY: `max` is at most 40, so the payload lies in `payload`, and the canary there or in `behind`,
    // which follows it without a gap.
    let used = unsafe { run_payload_init(library, (&raw mut aside).cast(), max, args)? };
    // SAFETY: the line lends 40 bytes, aligned to 8.
    unsafe { line.payload().cast::<[u64; INLINE_PAYLOAD / 8]>().write(aside.payload) };
    Ok(used)
}

#[cold]
fn init_failed(error: farjump_loader::Error) -> Box<Error> {
    Box::new(error.into())
}

#[cold]
fn overrun(library: &Library, max: usize) -> Box<Error> {
    Box::new(Error::Inject(InjectError::PayloadOverrun { ifunc: library.name().into(), max }))
}

/// Runs `NAME_payload_init` on `max` bytes at `space`; returns the number of bytes used.
///
/// # Safety
/// `space` must be valid for writes of `max + CANARY_LEN` bytes.
#[inline(always)]
pub(crate) unsafe fn run_payload_init(
    library: &Library,
    space: *mut u8,
    max: usize,
    args: &[u8],
) -> Result<usize, Box<Error>> {
    if library.payload_is_args() {
        // Nothing of the library's runs that could write too far.
        // SAFETY: the caller guarantees the space, of which at most `max` bytes are written.
        return unsafe { library.payload_init(space, max, args) }.map_err(|error| init_failed(*error));
    }
    // SAFETY: the caller guarantees the space. The library's routine must write at most `max` bytes, which is
    // checked.
    unsafe {
        space.add(max).cast::<u64>().write_unaligned(CANARY);
        let used = match library.payload_init(space, max, args) {
            Ok(used) => used,
            Err(error) => return Err(init_failed(*error)),
        };
        if space.add(max).cast::<u64>().read_unaligned() != CANARY {
            return Err(overrun(library, max));
        }
        Ok(used)
    }
}
