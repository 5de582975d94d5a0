//! The call that is running on this thread, as the services see it.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farjump_control::PeerIdentity;
use farjump_core::image::{CodeId, MAX_ALIGN_LOG2};

use super::enter::{self, Caller, Foreign, Main};
use super::fork;
use super::forward_requests::{Forwarding, NotForwarded};
use super::lent_bytes::LentBytes;
use crate::objects::{Lent, ObjectError, Objects, Request};

thread_local! {
    static CURRENT: Cell<*mut Context> = const { Cell::new(ptr::null_mut()) };
}

/// State and results of a call. One for each target, reused: a call allocates only when its reply outgrows
/// all earlier ones.
// `way_out` comes first: each call needs its address and that of the whole, which are one.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Context {
    way_out: usize,
    /// Address of the called code.
    main: u64,
    /// Bytes given to `farjump_reply`, in order; after a panic its message.
    reply: Vec<u8>,
    /// Most bytes that a reply may have.
    limit: usize,
    /// Whether there is more to the end of the call than to send the reply: it got too long, or the call is to be
    /// sent on.
    diverted: bool,
    panicked: bool,
    /// Whether the reply got too long. Of no meaning unless `diverted`.
    overflowed: bool,
    /// Destinations of the call, and the messages that it sends.
    // Boxed: what follows it would lie farther from what each call uses.
    forwarding: Box<Forwarding>,
    /// Memory for the copy that a call asks for, kept for the next one.
    copy: Vec<u8>,
    /// The target's store.
    pub(super) objects: Option<Box<dyn Objects>>,
    /// Whether the running call has used the store.
    uses_objects: bool,
    /// The source of a request to the store.
    pub(super) source: u64,
    /// Work for the end of the running call.
    at_end: Option<fn()>,
    /// Whether the reply of the running call is to be held.
    holds: bool,
    /// Whether calls are told apart by their sources. Otherwise all are nobody's.
    pub(super) tells_callers: bool,
    /// The source whose calls run; [`NO_SOURCE`] for the target's own.
    caller: u64,
    /// The processes behind the sources.
    callers: Vec<(u64, Arc<PeerIdentity>)>,
    /// The process whose calls ran last, if its link has ended since, and its source.
    ended_caller: Option<(u64, Arc<PeerIdentity>)>,
}

/// The source of calls that the target's program makes. No source has this number.
pub(crate) const NO_SOURCE: u64 = u64::MAX;

/// Largest alignment of a copy, in bytes: that of a payload.
const MAX_ALIGN: usize = 1 << MAX_ALIGN_LOG2;

/// The end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It returned.
    Returned,
    /// It returned, and its reply is to be held.
    Held,
    /// It called `farjump_panic`; the reply is the message.
    Panicked,
    /// It replied more than the limit; the reply is empty.
    ReplyTooLarge,
    /// It is to be sent on, with the requests of [`Forwarding::take`], whose replies become part of its own.
    Forwarded,
}

impl Context {
    pub(crate) fn new() -> Self {
        fork::watch();
        Context {
            way_out: 0,
            main: 0,
            reply: Vec::new(),
            limit: usize::MAX,
            diverted: false,
            panicked: false,
            overflowed: false,
            forwarding: Box::default(),
            copy: Vec::new(),
            objects: None,
            uses_objects: false,
            source: 0,
            at_end: None,
            holds: false,
            tells_callers: false,
            caller: NO_SOURCE,
            callers: Vec::new(),
            ended_caller: None,
        }
    }

    /// Reply of the last call.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Has calls count as this source's from now on, where they are told apart. Returns the one before.
    #[inline]
    pub(super) fn set_caller(&mut self, source: u64) -> u64 {
        if self.tells_callers { std::mem::replace(&mut self.caller, source) } else { NO_SOURCE }
    }

    /// Makes the process behind a source known.
    pub(super) fn add_caller(&mut self, source: u64, peer: Arc<PeerIdentity>) {
        self.callers.push((source, peer));
    }

    /// Forgets a source that has ended.
    pub(super) fn remove_caller(&mut self, source: u64) {
        let Some(index) = self.callers.iter().position(|(one, _)| *one == source) else { return };
        let caller = self.callers.swap_remove(index);
        if source == self.caller {
            self.ended_caller = Some(caller);
        }
    }

    /// The process behind the source whose calls ran last, also if its link has ended since.
    pub(super) fn last_caller(&self) -> Option<&Arc<PeerIdentity>> {
        let ended = self.ended_caller.as_ref().filter(|(source, _)| *source == self.caller);
        self.caller().or(ended.map(|(_, peer)| peer))
    }

    /// The process behind the source whose calls ran last.
    pub(super) fn caller(&self) -> Option<&Arc<PeerIdentity>> {
        self.callers.iter().find(|(source, _)| *source == self.caller).map(|(_, peer)| peer)
    }

    /// Address of the code that was called last; 0 before the first call.
    pub(super) fn main(&self) -> u64 {
        self.main
    }

    /// Destinations for calls, and the requests of the last call.
    pub(crate) fn forwarding(&mut self) -> &mut Forwarding {
        &mut self.forwarding
    }

    /// Calls `main`, whose replies may have up to `limit` bytes in all.
    ///
    /// # Safety
    /// `main` must be code that may be called with these arguments; it can do whatever native code can.
    #[inline(always)]
    pub(crate) unsafe fn call(
        &mut self,
        main: Main,
        payload: *mut c_void,
        size: usize,
        args: *mut c_void,
        limit: usize,
    ) -> Ended {
        self.main = main as usize as u64;
        self.reply.clear();
        self.limit = limit;
        (self.diverted, self.panicked) = (false, false);
        let context: *mut Context = self;
        let outer = CURRENT.replace(context);
        // SAFETY: the caller guarantees `main`; `way_out` is a field of a live value. Inside, the services
        // reach this value through `CURRENT` while nothing here touches it.
        let returned = unsafe { enter::enter(main, payload, size, args, &raw mut (*context).way_out) };
        CURRENT.set(outer);
        if returned && !self.diverted {
            return Ended::Returned;
        }
        self.ended()
    }

    /// The end of a call that did not simply return.
    #[cold]
    fn ended(&mut self) -> Ended {
        let overflowed = std::mem::take(&mut self.overflowed);
        let returned = !self.panicked && !overflowed;
        let work = self.at_end.take();
        if let Some(work) = work
            && catch_unwind(work).is_err()
        {
            log::error!("what the program does at the end of a call has panicked");
        }
        let uses_objects = std::mem::take(&mut self.uses_objects) && self.objects.is_some();
        if uses_objects && let Some(objects) = &mut self.objects {
            objects.call_ended(returned, &mut self.reply);
        }
        let holds = std::mem::take(&mut self.holds);
        if returned && (uses_objects || work.is_some() || holds) && !self.forwarding.has_requests() {
            return if holds { Ended::Held } else { Ended::Returned };
        }
        if returned {
            return Ended::Forwarded;
        }
        self.forwarding.forget();
        if self.panicked {
            return Ended::Panicked;
        }
        self.reply.clear();
        Ended::ReplyTooLarge
    }
}

/// Runs `work` when the call that runs on this thread has ended, however it ends, and before its reply is sent. For
/// functions that a program exports and that lend injected code something until its end. Of several, the last counts.
/// Returns `false`, and runs nothing, if no call runs on this thread.
///
/// A call that asks for nothing pays nothing.
pub fn at_call_end(work: fn()) -> bool {
    let Some(context) = NonNull::new(CURRENT.get()) else { return false };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.at_end) = (true, Some(work));
    true
}

/// Has the target hold the reply of the call that runs on this thread until [`Target::release_replies`](crate::Target::release_replies),
/// and with it what tells its source that the call has run ([`Link::flush`](crate::Link::flush)). For functions that a program
/// exports and that do something which is durable, or visible to others, only later: an append to a log. Calls that panic,
/// reply too much, or are sent on to other targets are not held, nor those that targets have sent back here. Returns
/// `false` if no call runs on this thread.
pub fn hold_reply() -> bool {
    let Some(context) = NonNull::new(CURRENT.get()) else { return false };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.holds) = (true, true);
    true
}

/// Returns the number of the source whose call runs on this thread. Each link of a target has another one, which is never used
/// again. This costs as much as reading a variable, so an exported function can compare it with the last one.
///
/// `None` if no call runs, for the program's own calls ([`Target::call`](crate::Target::call)), and in targets without
/// [`TargetBuilder::tell_callers`](crate::TargetBuilder::tell_callers).
// Not inlined: others would make the thread's pointer a symbol of the crate's, which takes each call two instructions more.
#[inline(never)]
pub fn caller_number() -> Option<u64> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. Only this field is read.
    let caller = unsafe { (&raw const (*context.as_ptr()).caller).read() };
    (caller != NO_SOURCE).then_some(caller)
}

/// Returns the process whose call runs on this thread, with the operator's name for its key, if it has one. For exported
/// functions that allow one source more than another. A call that another target has sent on is
/// that target's; one that a function has sent to its own target again is its first source's. `None` where [`caller_number`]
/// is, and if the source has ended since.
///
/// Injected code is native code: what an exported function refuses it, it can do itself (`docs/security.md`).
pub fn caller() -> Option<Arc<PeerIdentity>> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference ends here.
    let context = unsafe { &*context.as_ptr() };
    context.caller().cloned()
}

/// Address of the code that a call on this thread has entered. Safe in a signal handler.
pub(crate) fn running() -> Option<u64> {
    let context = CURRENT.get();
    if context.is_null() {
        return None;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`. The handler may have interrupted a service
    // that is changing the context, but nothing writes this field while a call runs, and only this field is
    // read.
    Some(unsafe { (&raw const (*context).main).read() })
}

/// Has the call that runs on this thread end the process when it returns or panics. For a forked child.
pub(super) fn end_process_with_call() {
    let context = CURRENT.get();
    if context.is_null() {
        return;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, and `way_out` was written by the `enter` of
    // this call, which has not returned: the fork was made inside it. Only this field is read.
    unsafe { enter::redirect((&raw const (*context).way_out).read(), end_of_child) };
}

/// The end of a call in a forked child.
extern "C" fn end_of_child() -> ! {
    // SAFETY: `enter` was left for this function before `Context::call` could clear `CURRENT`, whose borrow of
    // the context is idle.
    let context = unsafe { &*CURRENT.get() };
    fork::end_child(context.main, context.panicked.then_some(&context.reply))
}

/// Appends to the reply of the call that runs on this thread. Returns `false` if none runs or the reply gets
/// too long.
pub(super) fn append(bytes: LentBytes<'_>) -> bool {
    let context = CURRENT.get();
    if context.is_null() {
        return false;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, whose borrow of the context is idle
    // meanwhile; a service runs on the same thread and none calls another.
    let context = unsafe { &mut *context };
    if context.overflowed || bytes.len() > context.limit - context.reply.len() {
        (context.diverted, context.overflowed) = (true, true);
        return false;
    }
    bytes.append_to(&mut context.reply, usize::MAX);
    true
}

/// Copies `bytes` to a multiple of `align` bytes in memory of the context's, which is valid until the call that
/// runs on this thread ends or asks again. `None` if none runs, `align` is no power of two up to
/// [`MAX_ALIGN`], or there is no memory.
pub(super) fn copy(bytes: LentBytes<'_>, align: usize) -> Option<NonNull<u8>> {
    let context = NonNull::new(CURRENT.get())?;
    if !align.is_power_of_two() || align > MAX_ALIGN {
        return None;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let copy = unsafe { &mut (*context.as_ptr()).copy };
    copy.clear();
    copy.try_reserve_exact(bytes.len().checked_add(align)?).ok()?;
    let skip = copy.as_ptr().align_offset(align);
    copy.resize(skip, 0);
    bytes.append_to(copy, usize::MAX);
    NonNull::new(copy.as_mut_ptr().wrapping_add(skip))
}

/// Sends the call that runs on this thread to `peer`, or has it run again if that is `None`, once it returns.
pub(super) fn forward(peer: Option<LentBytes<'_>>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
    let context = CURRENT.get();
    if context.is_null() {
        return Err(NotForwarded::TooOften);
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context };
    let asked = match peer {
        Some(peer) => context.forwarding.ask(peer, payload),
        None => context.forwarding.ask_again(payload),
    };
    // The source is told of a call that would have gone too far.
    context.diverted |= matches!(asked, Ok(()) | Err(NotForwarded::TooFar));
    asked
}

/// Takes code that the call on this thread has made. Returns its id.
pub(super) fn make(code: LentBytes<'_>) -> Result<CodeId, NotForwarded> {
    let context = NonNull::new(CURRENT.get()).ok_or(NotForwarded::TooOften)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    // What is not sent is forgotten when the call ends.
    context.diverted |= context.forwarding.makes.is_some();
    context.forwarding.make(code)
}

/// Sends a message to other code, at `peer` or here, once the call on this thread returns.
pub(super) fn inject(code: CodeId, peer: LentBytes<'_>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
    let context = NonNull::new(CURRENT.get()).ok_or(NotForwarded::TooOften)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    let asked = context.forwarding.inject(code, peer, payload);
    context.diverted |= matches!(asked, Ok(()) | Err(NotForwarded::TooFar));
    asked
}

/// Answers a request to the target's store, whose source is the one of the context.
pub(super) fn request(request: Request<'_>) {
    let Some(context) = NonNull::new(CURRENT.get()) else { return };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    let Some(objects) = &mut context.objects else { return };
    let (source, limit) = (context.source, context.limit);
    let answered =
        catch_unwind(AssertUnwindSafe(|| objects.request(source, request, &mut context.reply, limit)));
    let failed = match answered {
        Ok(Ok(())) if context.reply.len() <= limit => return,
        Ok(Ok(())) => "the reply of the target's store is too long for this link".to_owned(),
        Ok(Err(text)) => text,
        Err(_) => "the target's store failed: its log says why".to_owned(),
    };
    context.reply.clear();
    context.reply.extend_from_slice(&failed.as_bytes()[..failed.len().min(limit)]);
    (context.diverted, context.panicked) = (true, true);
}

/// Has the target's store do something for the call on this thread.
fn with_objects(
    work: impl FnOnce(&mut dyn Objects) -> Result<Lent, ObjectError>,
) -> Result<Lent, ObjectError> {
    let context = NonNull::new(CURRENT.get()).ok_or(ObjectError::NoStore)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    let objects = context.objects.as_deref_mut().ok_or(ObjectError::NoStore)?;
    (context.diverted, context.uses_objects) = (true, true);
    catch_unwind(AssertUnwindSafe(|| work(objects))).unwrap_or(Err(ObjectError::NoStore))
}

/// The object of a handle, for the call on this thread.
pub(super) fn object(handle: Request<'_>) -> Result<Lent, ObjectError> {
    with_objects(|objects| objects.resolve(handle))
}

/// A new object of `len` bytes of the call on this thread.
pub(super) fn new_object(len: usize) -> Result<Lent, ObjectError> {
    with_objects(|objects| objects.create(len))
}

/// The reason why a call was not ended.
pub(super) enum NotLeft {
    /// None runs on this thread.
    NoCall,
    /// It is inside this function, which is not injected.
    Across(Foreign),
}

/// Ends the call that runs on this thread, with a message that is cut at the limit; returns only if it
/// cannot. `caller` called the service.
pub(super) fn abandon(message: LentBytes<'_>, caller: Caller) -> NotLeft {
    let context = CURRENT.get();
    if context.is_null() {
        return NotLeft::NoCall;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, and `way_out` was written by the `enter` of
    // this call, which has not returned; only this field is read.
    let way_out = unsafe { (&raw const (*context).way_out).read() };
    // SAFETY: the caller runs on this thread, inside that `enter`.
    if let Some(function) = unsafe { enter::foreign(caller, way_out) } {
        return NotLeft::Across(function);
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference is not used
    // after the jump, and owns nothing. `way_out` was written by the `enter` of this call, which has not
    // returned. Between it and here there are only injected code and the service that called this: `foreign`
    // has found nothing else, and where it cannot see, the author of the code guarantees it (see `call`).
    unsafe {
        let context = &mut *context;
        context.reply.clear();
        message.append_to(&mut context.reply, context.limit);
        context.panicked = true;
        enter::leave(context.way_out)
    }
}
