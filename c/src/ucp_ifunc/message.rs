//! Messages: frames that can be sent any number of times, and their memory.
//!
//! C has a message as three words by value, so it can be freed twice, or used after that. Its memory is
//! therefore kept for other messages, and never freed, with a word in front that says whether it is in use. A
//! second `free` is detected, unless a new message got the memory meanwhile.

use std::alloc::{Layout, alloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use farjump_core::frame::DEFAULT_ALIGN_LOG2;
use farjump_core::image::Machine;
use farjump_ucx_sys::{UCS_ERR_CANCELED, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY};
use rustix::mm::{Advice, madvise};

use super::Refused;
use super::frame::{self, CHECK, HEAD, INLINE, Key, MAX_FRAME, Part, SLOT_ALIGN_LOG2};
use super::ifunc::{Ifunc, Source};

const IN_USE: u64 = 0x6661_726a_7563_7031;
const FREE: u64 = 0x6661_726a_7563_7030;
/// Written behind a payload's space, to detect a routine that wrote past it.
const CANARY: [u8; 8] = 0x66f5_0c7a_91d3_e82b_u64.to_le_bytes();
/// Free memory longer than this returns its pages to the system.
const KEPT_WHOLE: usize = 1 << 20;

/// Header in front of a frame.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Message {
    state: AtomicU64,
    key: Key,
    /// Length in bytes of the frame with its code part.
    len: usize,
    /// Length in bytes without the code part.
    short: usize,
    payload_len: usize,
    /// log2 of the payload's alignment, relative to the slot.
    align_log2: u8,
    /// log2 of the slot's alignment.
    slot_log2: u8,
    class: Class,
}

const _: () = assert!(size_of::<Message>() == 64);

/// Length and alignment of a piece of memory, as powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Class {
    /// log2 of the space for the frame in bytes.
    space: u8,
    /// log2 of the frame's alignment; also log2 of its offset from the start of the block.
    align: u8,
}

/// Unused memory.
struct Free(NonNull<Message>);

// SAFETY: nothing else knows this memory, but for stale copies of messages, which only read `state`.
unsafe impl Send for Free {}

static KEPT: Mutex<[[Vec<Free>; 32]; 7]> = Mutex::new([const { [const { Vec::new() }; 32] }; 7]);

impl Message {
    /// Returns the message of this frame.
    ///
    /// # Errors
    /// [`UCS_ERR_INVALID_PARAM`] if it is null, or was freed.
    ///
    /// # Safety
    /// `frame` must be null or a result of [`create`], freed or not. The message must not be freed while the
    /// result is used.
    #[inline(always)]
    pub(super) unsafe fn of<'a>(frame: *mut c_void) -> Result<&'a Message, Refused> {
        if frame.is_null() {
            return Err(Refused::new(
                UCS_ERR_INVALID_PARAM,
                "the message has no frame: was creating it not looked at?",
            ));
        }
        // SAFETY: in front of every frame there is a message, in memory that is never freed.
        let message = unsafe { &*frame.cast::<Message>().sub(1) };
        if message.state.load(Ordering::Acquire) != IN_USE {
            return Err(Refused::new(UCS_ERR_INVALID_PARAM, "the message was freed"));
        }
        Ok(message)
    }

    /// Returns the frame: [`Message::len`] bytes, of which the first eight have no meaning.
    #[inline(always)]
    pub(super) fn frame(&self) -> *mut u8 {
        // SAFETY: the frame lies right behind, in the same piece of memory.
        unsafe { std::ptr::from_ref(self).add(1).cast::<u8>().cast_mut() }
    }

    /// Returns the length of the frame with its code part in bytes.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the length of the frame without its code part in bytes.
    #[inline(always)]
    pub(super) fn short(&self) -> usize {
        self.short
    }

    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Returns the two words behind the signal, with or without the code part.
    #[inline(always)]
    pub(super) fn words(&self, carries: bool) -> [u64; 2] {
        self.words_of(if carries { self.len } else { self.short }, carries)
    }

    /// Returns these words for a frame of `len` bytes.
    #[inline(always)]
    pub(super) fn words_of(&self, len: usize, carries: bool) -> [u64; 2] {
        frame::words(len, self.payload_len, self.key.word(self.align_log2, carries))
    }

    /// Returns the code part for targets of this machine alone, in words. Returns `None` if the frame carries no more
    /// than that, or if there is no memory for it: then all images travel.
    #[cold]
    pub(super) fn part_for(&self, machine: Machine) -> Option<Vec<u64>> {
        let len = self.len - self.short;
        // SAFETY: the code part lies in the frame, and nothing changes it.
        let bytes = unsafe { std::slice::from_raw_parts(self.frame().add(self.short), len) };
        let whole = Part::read(bytes, self.key)?;
        whole.for_machine(machine)?;
        let part = whole.with_only(machine);
        if part.len() == len {
            return None;
        }
        let mut words = Vec::new();
        words.try_reserve_exact(part.len() / 8).ok()?;
        words.resize(part.len() / 8, 0_u64);
        // SAFETY: words are bytes.
        part.write(unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), part.len()) });
        Some(words)
    }

    /// Returns the address and length of the payload.
    pub(super) fn payload(&self) -> (*mut u8, usize) {
        // SAFETY: the payload lies in the frame.
        (unsafe { self.frame().add(frame::payload_offset(self.align_log2)) }, self.payload_len)
    }

    /// Returns the alignment that the slot's address must have, in bytes.
    #[inline(always)]
    pub(super) fn slot_align(&self) -> usize {
        1 << self.slot_log2
    }
}

/// Makes a message: its routines run here. Returns the frame, and its length in bytes.
///
/// # Errors
/// [`UCS_ERR_CANCELED`] where the payload routine fails, or wrote past its space; [`UCS_ERR_EXCEEDS_LIMIT`]
/// for a frame over 2 GiB; [`UCS_ERR_NO_MEMORY`]; [`UCS_ERR_INVALID_PARAM`] for an ifunc that was
/// deregistered.
///
/// # Safety
/// `args` and `size` must be as the ifunc's routines expect; for code that came in a frame, `size` readable
/// bytes.
pub(super) unsafe fn create(
    ifunc: &Ifunc,
    args: *mut c_void,
    size: usize,
) -> Result<(*mut c_void, usize), Refused> {
    let source = ifunc.source()?;
    let max = match source.library() {
        // SAFETY: this function's caller guarantees the arguments.
        Some(library) => unsafe { library.payload_max_size_of(args, size) },
        None if args.is_null() && size != 0 => {
            let text = format!(
                "`{}` came in a frame, so its arguments are its payload, and they are NULL",
                ifunc.name()
            );
            return Err(Refused::new(UCS_ERR_INVALID_PARAM, text));
        }
        None => size,
    };
    // A slot may lie anywhere, unless the code relies on its payload's alignment.
    let (align_log2, slot_log2) = match source.payload_align_log2() {
        0 if max <= INLINE => (SLOT_ALIGN_LOG2, SLOT_ALIGN_LOG2),
        0 => (DEFAULT_ALIGN_LOG2, SLOT_ALIGN_LOG2),
        wanted => (wanted, wanted),
    };
    let offset = frame::payload_offset(align_log2);
    let space_of = |part: &Part<'_>| {
        max.checked_add(offset + CANARY.len() + 8 + part.len() + CHECK).filter(|space| *space <= MAX_FRAME)
    };
    // All images, where they fit: the peer's machine is not known yet.
    let whole = source.part(ifunc.name());
    let (part, space) = match (space_of(&whole), Machine::native()) {
        (None, Some(machine)) => {
            let own = whole.with_only(machine);
            let space = space_of(&own);
            (own, space)
        }
        (space, _) => (whole, space),
    };
    let space = space.ok_or_else(|| {
        let text =
            format!("`{}` wants a payload of {max} bytes: a frame has at most {MAX_FRAME}", ifunc.name());
        Refused::new(UCS_ERR_EXCEEDS_LIMIT, text)
    })?;
    let taken = take(space, align_log2)?;
    // SAFETY: the memory is this function's alone, and its frame has `space` bytes and more.
    let made = unsafe { fill(taken, &source, (args, size), &part, (offset, max)) };
    let (payload_len, short) = made.inspect_err(|_| keep(taken))?;
    let class = class_of(space, align_log2);
    let message = Message {
        state: AtomicU64::new(IN_USE),
        key: source.key(ifunc.name()),
        len: short + part.len(),
        short,
        payload_len,
        align_log2,
        slot_log2,
        class,
    };
    let len = message.len;
    // SAFETY: the memory is this function's alone, and a `Message` fits in front of the frame.
    unsafe {
        let [lengths, third] = message.words(true);
        taken.write(message);
        let frame = taken.add(1).cast::<u64>();
        frame.write(frame::NOTHING);
        frame.add(1).write(lengths.to_le());
        frame.add(2).write(third.to_le());
        Ok((frame.as_ptr().cast(), len))
    }
}

/// Writes payload and code part. Returns the payload's length, and the offset of the code part.
///
/// # Safety
/// Behind `taken` there must be space for all of it, which nothing else uses; `args` as for [`create`].
unsafe fn fill(
    taken: NonNull<Message>,
    source: &Source,
    (args, size): (*mut c_void, usize),
    part: &Part<'_>,
    (offset, max): (usize, usize),
) -> Result<(usize, usize), Refused> {
    // SAFETY: this function's caller guarantees the space, which is wholly written before it is read.
    let used = unsafe {
        let frame = taken.add(1).cast::<u8>();
        frame.add(HEAD).write_bytes(0, offset - HEAD);
        let payload = frame.add(offset);
        let canary = payload.add(max).cast::<[u8; 8]>();
        canary.write(CANARY);
        let used = match source.library() {
            Some(library) => library.payload_init_of(payload.as_ptr(), max, args, size),
            None => {
                if size != 0 {
                    payload.as_ptr().copy_from_nonoverlapping(args.cast(), size);
                }
                Ok(size)
            }
        };
        let used = used.map_err(|error| Refused::new(UCS_ERR_CANCELED, error.to_string()))?;
        if canary.read() != CANARY {
            let text = format!(
                "the payload routine of `{}` wrote past the {max} bytes that it had requested: correct it; the memory of this process may be damaged",
                part.name
            );
            return Err(Refused::new(UCS_ERR_CANCELED, text));
        }
        used
    };
    let end = offset + used;
    let short = end.next_multiple_of(8);
    // SAFETY: the code part lies in the space that the caller guarantees.
    unsafe {
        let frame = taken.add(1).cast::<u8>();
        frame.add(end).write_bytes(0, short - end + part.len());
        part.write(std::slice::from_raw_parts_mut(frame.add(short).as_ptr(), part.len()));
    }
    Ok((used, short))
}

/// Frees a message.
///
/// # Errors
/// [`UCS_ERR_INVALID_PARAM`] if it was freed before; nothing happens then.
///
/// # Safety
/// As for [`Message::of`].
pub(super) unsafe fn free(frame: *mut c_void) -> Result<(), Refused> {
    // SAFETY: this function's caller gives the same guarantees.
    let message = unsafe { Message::of(frame) }?;
    if message.state.compare_exchange(IN_USE, FREE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(Refused::new(UCS_ERR_INVALID_PARAM, "the message was freed"));
    }
    let space = 1 << message.class.space;
    if space > KEPT_WHOLE {
        let page = rustix::param::page_size();
        let start = message.frame().map_addr(|address| address.next_multiple_of(page));
        // SAFETY: whole pages inside the space of a frame that nothing uses any more; their contents do not
        // matter.
        let _ = unsafe { madvise(start.cast(), space - 2 * page, Advice::LinuxDontNeed) };
    }
    keep(NonNull::from(message));
    Ok(())
}

fn class_of(space: usize, align_log2: u8) -> Class {
    let space = space.next_power_of_two().max(256).ilog2() as u8;
    Class { space, align: align_log2.max(6) }
}

/// Takes memory for a frame of `space` bytes. Its `class` and `state` are set.
fn take(space: usize, align_log2: u8) -> Result<NonNull<Message>, Refused> {
    let class = class_of(space, align_log2);
    let kept = {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept[usize::from(class.align - 6)][usize::from(class.space)].pop()
    };
    if let Some(Free(message)) = kept {
        return Ok(message);
    }
    let (front, space) = (1_usize << class.align, 1_usize << class.space);
    let no_memory = || Refused::new(UCS_ERR_NO_MEMORY, format!("no memory for a message of {space} bytes"));
    let layout = Layout::from_size_align(front + space, front).map_err(|_| no_memory())?;
    // SAFETY: the layout is not empty. The message lies right in front of the frame, which is `front` behind
    // the start; that is at least the length of a `Message`.
    unsafe {
        let start = NonNull::new(alloc(layout)).ok_or_else(no_memory)?;
        let message = start.add(front).cast::<Message>().sub(1);
        message.write(Message {
            state: AtomicU64::new(FREE),
            key: Key::of_name(""),
            len: 0,
            short: 0,
            payload_len: 0,
            align_log2,
            slot_log2: SLOT_ALIGN_LOG2,
            class,
        });
        Ok(message)
    }
}

fn keep(message: NonNull<Message>) {
    // SAFETY: it is memory of `take`'s, where `class` is always set.
    let class = unsafe { message.as_ref() }.class;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept[usize::from(class.align - 6)][usize::from(class.space)].push(Free(message));
}
