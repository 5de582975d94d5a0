//! Frames in the caller's buffers, for runtimes that move bytes themselves.
//!
//! A [`FrameWriter`] makes one frame at the start of a buffer; a [`FrameRunner`] polls a buffer and runs the
//! frame in it. Nothing here waits, connects or moves a byte, and there is no control connection. The caller
//! that moves the buffer guarantees that it has arrived whole, and supplies missing code by sending it again.
//!
//! A [`DirectCaller`] is for interfaces with their own frames, which need only the call.
//!
//! Writer and runner count frames: the `n`-th written is the `n`-th run. A buffer that holds an earlier
//! frame, or anything else, reads as empty, so buffers need not be cleared between uses.
//!
//! ```
//! # fn library() -> Option<farjump::Library> { None }
//! # fn main() -> Result<(), farjump::Error> {
//! use farjump::Executor;
//! use farjump::buffer::{AlignedBuffer, FrameRunner, FrameWriter, RunOutcome};
//! use farjump::core::signal::LinkKey;
//!
//! let mut executor = Executor::builder().build()?;
//! let key = LinkKey::from_bytes(*b"sixteen  random!");
//! let mut writer = FrameWriter::new(key, executor.epoch());
//! let mut runner = FrameRunner::new(key);
//! let mut buffer = AlignedBuffer::new(4096);
//! # let Some(library) = library() else { return Ok(()) };
//! let len = writer.write(&mut buffer, &library, b"arguments")?;
//! // … move `len` bytes to where the other side's buffer is …
//! // SAFETY: the bytes come from a writer that is trusted with this process.
//! match unsafe { runner.run(&mut executor, &mut buffer) }? {
//!     RunOutcome::Done { reply, .. } => println!("it replied {} bytes", reply.len()),
//!     other => println!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use farjump_core::frame::{FrameView, Kind, LINE, MAX_FRAME, Plan, PlanCode, Trailer};
use farjump_core::image::{CodeId, Machine, Platform};
use farjump_core::signal::LinkKey;
use farjump_loader::Copied;
use farjump_loader::Library;

pub use crate::executor::{CallOutcome, DirectCaller};
use crate::executor::{CodeTable, Ended, Executor, Named, Ready};
use crate::link::run_payload_init;
use crate::{Error, InjectError, Refusal};

/// Bytes aligned to 4096, enough for frames with any payload alignment. If no function needs payloads aligned to more
/// than 64 bytes, any other memory aligned to 64 bytes serves too.
#[derive(Debug)]
pub struct AlignedBuffer {
    pages: Vec<Page>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl AlignedBuffer {
    /// Allocates `len` zero bytes.
    pub fn new(len: usize) -> Self {
        AlignedBuffer { pages: vec![Page([0; 4096]); len.div_ceil(4096)], len }
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are plain bytes without padding, at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `pages` holds at least `len` plain bytes, as in `deref`, and `self` is borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

/// Makes frames for one receiver.
#[derive(Debug)]
pub struct FrameWriter {
    key: LinkKey,
    epoch: u64,
    target: Platform,
    written: u64,
    codes: HashMap<CodeId, u16>,
}

impl FrameWriter {
    /// A writer for a receiver with this key, whose executor has this epoch. The key should be random
    /// ([`LinkKey::from_bytes`]).
    pub fn new(key: LinkKey, epoch: u64) -> Self {
        let target = Platform::baseline(Machine::native().unwrap_or(Machine::X86_64));
        FrameWriter { key, epoch, target, written: 0, codes: HashMap::new() }
    }

    /// Sets the platform of the receiver's CPU. Without it the receiver is this kind of machine, with any CPU.
    #[must_use]
    pub fn for_platform(mut self, target: Platform) -> Self {
        self.target = target;
        self
    }

    /// Makes the next frame at the start of `buffer`: a call of the function of `library`, whose payload
    /// routines run on `args` right in the buffer. The code travels in the first frame of each function.
    /// Returns the frame's length, a multiple of 64: the number of bytes to move.
    ///
    /// # Errors
    /// [`Error::Misaligned`] when `buffer` is not aligned to 64 bytes or as the payload requires,
    /// [`crate::InjectError::TooLarge`] when it is too short, and when a payload routine fails. The frame
    /// then does not count.
    pub fn write(&mut self, buffer: &mut [u8], library: &Library, args: &[u8]) -> Result<usize, Error> {
        library.check_payload()?;
        let image = library.image_for(self.target)?;
        check_alignment(buffer, image.payload_align_log2())?;
        let next =
            u16::try_from(self.codes.len()).map_err(|_| Error::Inject(InjectError::TooManyFunctions))?;
        let known = self.codes.get(&image.id()).copied();
        let index = known.unwrap_or(next);
        let named = PlanCode {
            image: image.bytes(),
            id: image.id(),
            epoch: self.epoch,
            name: library.name(),
            family: None,
        };
        let plan = Plan {
            kind: if known.is_some() { Kind::Call } else { Kind::CallCode },
            wants_reply: true,
            alone: false,
            travelled: false,
            index,
            token: self.written as u32,
            align_log2: image.payload_align_log2(),
            code: known.is_none().then_some(named),
        };
        let max = library.payload_max_size(args);
        let limit = buffer.len().min(MAX_FRAME);
        let too_large =
            |len| Error::Inject(InjectError::TooLarge { ifunc: library.name().into(), len, max: limit });
        if max > MAX_FRAME {
            return Err(too_large(max));
        }
        let space = max + crate::link::CANARY_LEN;
        let layout = plan.layout(BASE, space, Trailer::Never);
        if layout.frame_len > limit {
            return Err(too_large(layout.frame_len));
        }
        let payload = &mut buffer[layout.payload..layout.payload + space];
        // SAFETY: `payload` has space for `max` bytes and the canary.
        let used =
            unsafe { run_payload_init(library, payload.as_mut_ptr(), max, args) }.map_err(|error| *error)?;
        let header = plan
            .write(&layout, self.key.header(self.written), used, buffer)
            .ok_or_else(|| too_large(layout.frame_len))?;
        self.codes.insert(image.id(), index);
        self.written += 1;
        Ok(header.frame_len as usize)
    }

    /// Marks all code as not sent, because the receiver does not have it: the next frame of each function carries its
    /// code again. That frame replaces the first of the last `not_run` frames, which the receiver did not consume.
    /// After [`RunOutcome::NeedsCode`] these are the frame in question and all behind it; after
    /// [`RunOutcome::Refused`], those behind it. The caller writes them again.
    pub fn resend_code(&mut self, not_run: u64) {
        self.codes.clear();
        self.written = self.written.saturating_sub(not_run);
    }
}

/// Result of [`FrameRunner::run`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunOutcome<'a> {
    /// No frame, or not the one that is due.
    Empty,
    /// It ran.
    Done {
        /// Length of the frame in the buffer.
        frame_len: usize,
        /// Its reply.
        reply: &'a [u8],
    },
    /// It ran and called `farjump_panic` with this message.
    Panicked {
        /// Length of the frame in the buffer.
        frame_len: usize,
        /// The message.
        message: &'a [u8],
    },
    /// The frame names code that is not in the executor's store. It still counts as not run.
    NeedsCode(CodeId),
    /// The executor refused the frame, which counts as consumed. Nothing ran.
    Refused(Refusal),
}

/// Runs frames of one sender.
///
/// Code that a runner has called stays in its executor's store until this runner needs the capacity, or is
/// dropped: another runner's code does not evict it.
#[derive(Debug)]
pub struct FrameRunner {
    key: LinkKey,
    run: u64,
    table: CodeTable,
    /// Code that a frame brought, until it is placed.
    copied: Copied,
    origin: Arc<str>,
}

impl FrameRunner {
    /// A runner for a sender that writes with this key.
    pub fn new(key: LinkKey) -> Self {
        FrameRunner {
            key,
            run: 0,
            table: CodeTable::new(),
            copied: Copied::default(),
            origin: Arc::from("the program itself"),
        }
    }

    /// Looks at the start of `buffer` and runs the frame there, if it is the one that is due. The function
    /// may change its payload, in the buffer.
    ///
    /// The caller guarantees that the frame has arrived whole. `buffer` is borrowed, so nothing writes it
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Misaligned`] when `buffer` is not aligned to 64 bytes. A defect of a frame is no error but
    /// [`RunOutcome::Refused`].
    ///
    /// # Safety
    /// The code that the buffer brings or names runs in this process, and may do anything that this process
    /// may do. Checks of frames and images keep out damage, not malice. So
    /// * every process that made the bytes, or can change them on their way, must be trusted with the whole
    ///   process,
    /// * the executor must offer the imports and the `target_args` that the code expects
    ///   ([`Executor::set_target_args`]).
    pub unsafe fn run<'e>(
        &mut self,
        executor: &'e mut Executor,
        buffer: &mut [u8],
    ) -> Result<RunOutcome<'e>, Error> {
        check_alignment(buffer, 0)?;
        let due = self.key.header(self.run);
        if buffer.len() < LINE || buffer[..8] != due.to_le_bytes() {
            return Ok(RunOutcome::Empty);
        }
        let mut len = [0; 4];
        len.copy_from_slice(&buffer[8..12]);
        let frame_len = (u32::from_le_bytes(len) as usize).clamp(LINE, buffer.len());
        let (view, header) = match FrameView::new_checked(&buffer[..frame_len], BASE, MAX_FRAME) {
            Ok(view) => (view, view.header()),
            Err(error) => {
                return Ok(self.refuse(Refusal::new(crate::RefusalCause::BadFrame, error.to_string())));
            }
        };
        let parts = view.parts();
        if let Err(refusal) = executor.policy.payload(header.payload_len as usize) {
            if matches!(header.kind, Kind::CallCode | Kind::CallId) {
                self.table.refuse(header.index, &refusal);
            }
            return Ok(self.refuse(refusal));
        }
        let mut local = None;
        let ready = match (header.kind, parts.code) {
            (Kind::CallCode | Kind::CallId, Some(code)) => {
                let (name, image) = (view.name().unwrap_or_default(), view.image().unwrap_or_default());
                self.copied.set(image, name);
                let copied = &mut self.copied;
                let family = view.family();
                let (id, epoch, origin) = (code.id, code.epoch, &self.origin);
                let mut named = Named { id, epoch, family, copied, origin, space_was_made: false };
                match executor.bind(&mut self.table, header.index, &mut named) {
                    Ok(Ready::Crowded(need)) => {
                        executor.make_space(&need, |linked| self.table.drop_code(&linked.id()));
                        named.space_was_made = true;
                        executor.bind(&mut self.table, header.index, &mut named)
                    }
                    other => other,
                }
            }
            (Kind::CallLocal, Some(_)) => executor.local(view.name().unwrap_or_default()).map(|code| {
                local = Some(code);
                Ready::Yes
            }),
            (Kind::CallInPlace, _) => {
                let text = "a buffer is memory in which code cannot run in place: choose another mode";
                Err(Refusal::new(crate::RefusalCause::Policy, text))
            }
            (Kind::Call, _) => executor.ready(&self.table, header.index),
            (kind, _) => {
                let text = format!("a frame of kind {kind:?} has nothing to run");
                Err(Refusal::new(crate::RefusalCause::BadFrame, text))
            }
        };
        match ready {
            Ok(Ready::Yes) => {}
            Ok(Ready::Needs(id)) => return Ok(RunOutcome::NeedsCode(id)),
            Ok(Ready::NeedsManifest(family)) => {
                let text = format!(
                    "whether its code may come in depends on the manifest of family {family}, and frames in buffers bring \
                     none: allow the code itself (TargetConfig::allow_code)"
                );
                let refusal = Refusal::new(crate::RefusalCause::Policy, text);
                self.table.refuse(header.index, &refusal);
                return Ok(self.refuse(refusal));
            }
            // Only binding needs capacity, and it ended above. Only targets compile.
            Ok(Ready::Crowded(_) | Ready::Compiling(_)) => return Ok(RunOutcome::Empty),
            Err(refusal) => return Ok(self.refuse(refusal)),
        }
        self.run += 1;
        let payload = &mut buffer[parts.payload as usize..][..header.payload_len as usize];
        let bound = || self.table.bound(header.index).map(|(code, _)| code);
        let Some(code) = local.or_else(bound) else { return Ok(RunOutcome::Empty) };
        let align = code.align;
        if payload.as_ptr().align_offset(align) != 0 {
            let text = format!("its payload wants an alignment of {align} bytes: use a buffer that has it");
            return Ok(RunOutcome::Refused(Refusal::new(crate::RefusalCause::BadFrame, text)));
        }
        let (address, len) = (payload.as_mut_ptr(), payload.len());
        let reply_limit = executor.reply_limit();
        // SAFETY: `buffer` is borrowed exclusively for the call and the payload's alignment was checked;
        // `ready` returned the code.
        let ended = unsafe { executor.run_alone(&code, address.cast(), len, reply_limit) };
        // SAFETY: the code is still bound: nothing unbound it since the call.
        unsafe { executor.count(code.usage) };
        Ok(match ended {
            Ended::Panicked => RunOutcome::Panicked { frame_len, message: executor.reply() },
            Ended::Returned | Ended::Held => RunOutcome::Done { frame_len, reply: executor.reply() },
            Ended::ReplyTooLarge => {
                let text = "the function ran and replied more than the executor's limit: set a larger one"
                    .to_owned();
                RunOutcome::Refused(Refusal { cause: crate::RefusalCause::ReplyTooLarge, text })
            }
            // Only targets have destinations: `farjump_forward` finds none here.
            Ended::Forwarded => RunOutcome::Empty,
        })
    }

    fn refuse(&mut self, refusal: Refusal) -> RunOutcome<'static> {
        self.run += 1;
        RunOutcome::Refused(refusal)
    }
}

/// Frames are laid out as if they started on a page. The offsets of the parts must not depend on the buffer's
/// address: the peer's buffer has another one.
const BASE: usize = 0;

fn check_alignment(buffer: &[u8], payload_log2: u8) -> Result<(), Error> {
    let address = buffer.as_ptr().addr();
    if !address.is_multiple_of(LINE) {
        return Err(Error::Misaligned { align: 64 });
    }
    if !address.is_multiple_of(1 << payload_log2) {
        return Err(Error::Misaligned { align: 1 << payload_log2 });
    }
    Ok(())
}
