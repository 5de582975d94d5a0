//! The call that is running on this thread, as the services see it.

mod modes;

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::thread;

use farjump_control::PeerIdentity;
use farjump_core::image::{CodeId, MAX_ALIGN_LOG2};

use super::enter::{self, Caller, ControlWords, Foreign, Main};
use super::fork;
use super::forward_requests::{Forwarding, NotForwarded};
use super::lent_bytes::LentBytes;
use crate::objects::{Answer, Bell, Lent, ObjectError, Objects, Request, Unanswered};
use crate::principals::Principal;

thread_local! {
    static CURRENT: Cell<*mut Context> = const { Cell::new(ptr::null_mut()) };
}

/// State and results of a call. One for each target, reused: a call allocates only when its reply outgrows
/// all earlier ones.
// `way_out` comes first: each call needs its address and that of the whole, which are one. What else every call uses
// follows in the same line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Context {
    way_out: usize,
    /// Address of the called code.
    main: u64,
    /// Bytes given to `farjump_reply`, in order; after a panic its message.
    reply: Vec<u8>,
    /// Most bytes that a reply may have.
    limit: usize,
    /// The third argument of a target's calls.
    pub(super) target_args: *mut c_void,
    /// Whether there is more to the end of the call than to send the reply: it got too long, or the call is to be
    /// sent on.
    diverted: bool,
    panicked: bool,
    /// The modes of arithmetic that the program has, from the beginning of a poll or call on.
    modes: ControlWords,
    /// Whether the reply got too long. Of no meaning unless `diverted`.
    overflowed: bool,
    /// Whether the reply of the running call is to be held.
    holds: bool,
    /// Whether the running call has used the store.
    uses_objects: bool,
    /// Whether frames run for the principals of their sources. Otherwise for none.
    pub(super) tells_callers: bool,
    /// Destinations of the call, and the messages that it sends.
    // Boxed: what follows it would lie farther from what each call uses.
    forwarding: Box<Forwarding>,
    /// Memory for the copy that a call asks for, kept for the next one.
    copy: Vec<u8>,
    /// The target's store.
    pub(super) objects: Option<Box<dyn Objects>>,
    /// The source of a request to the store.
    pub(super) source: u64,
    /// The store has not answered the last request.
    pub(super) unanswered: Option<Unanswered>,
    /// What the store rings, if it has requests wait.
    pub(super) bell: Option<Arc<Bell>>,
    /// Work for the end of the running call.
    at_end: Option<fn()>,
    /// The principal of the running call, or of the last one.
    principal: Option<Arc<Principal>>,
}

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
            target_args: ptr::null_mut(),
            diverted: false,
            panicked: false,
            modes: ControlWords::DEFAULT,
            overflowed: false,
            holds: false,
            uses_objects: false,
            tells_callers: false,
            forwarding: Box::default(),
            copy: Vec::new(),
            objects: None,
            source: 0,
            unanswered: None,
            bell: None,
            at_end: None,
            principal: None,
        }
    }

    /// Reply of the last call.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Has calls run for this principal from now on.
    #[inline]
    pub(super) fn set_principal(&mut self, principal: Option<Arc<Principal>>) -> Option<Arc<Principal>> {
        std::mem::replace(&mut self.principal, principal)
    }

    /// The principal of the last call.
    pub(super) fn principal(&self) -> Option<&Arc<Principal>> {
        self.principal.as_ref()
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
        unsafe { enter::enter(main, payload, size, args, &raw mut (*context).way_out) };
        CURRENT.set(outer);
        if !self.diverted {
            return Ended::Returned;
        }
        self.ended()
    }

    /// The end of a call that did not simply return.
    #[cold]
    fn ended(&mut self) -> Ended {
        // What runs here is the program's.
        self.restore_modes();
        let overflowed = std::mem::take(&mut self.overflowed);
        let returned = !self.panicked && !overflowed;
        let work = self.at_end.take();
        if let Some(work) = work
            && catch_unwind(work).is_err()
        {
            log::error!("what the program does at the end of a call has panicked");
        }
        // What the call has asked for knows of it.
        self.forwarding.awaits_store = false;
        let uses_objects = std::mem::take(&mut self.uses_objects) && self.objects.is_some();
        if uses_objects && let Some(objects) = &mut self.objects {
            objects.call_ended(returned, &mut self.reply);
        }
        let holds = std::mem::take(&mut self.holds);
        if returned && (uses_objects || work.is_some() || holds) && !self.forwarding.has_requests() {
            return if holds { Ended::Held } else { Ended::Returned };
        }
        if returned {
            self.forwarding.is_held = holds;
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
/// exports and that do something which is durable, or visible to others, only later: an append to a log. A call that sends itself
/// on has one reply with the calls that it leads to, and that waits for the holds of all of them that ran here. A call that panics
/// or replies too much does not hold its own reply. Returns `false` if no call runs on this thread.
pub fn hold_reply() -> bool {
    let Some(context) = NonNull::new(CURRENT.get()) else { return false };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.holds) = (true, true);
    true
}

/// Appends a copy of `bytes` to the reply of the call that runs on this thread, as `farjump_reply` does. For functions that a
/// program exports and that reply in the name of their callers. Returns `false`, and appends nothing, if the reply would exceed
/// the target's limit, or no call runs on this thread.
pub fn reply(bytes: &[u8]) -> bool {
    append(bytes.into())
}

/// Does something with the principal of the call that runs on this thread. `work` calls no service.
fn with_principal<T>(work: impl FnOnce(&Arc<Principal>) -> T) -> Option<T> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. Only this field is read, and the reference ends
    // with `work`.
    let principal = unsafe { &(*context.as_ptr()).principal };
    principal.as_ref().map(work)
}

/// Returns for whom the call runs that runs on this thread. For exported functions that allow one principal more than another.
/// A call that another target has sent on runs for that target; one that a function has sent to its own target again, or to
/// code that it has made, for the principal of that function's call, also if its link has ended since.
///
/// `None` if no call runs, and for calls of links in targets without
/// [`TargetBuilder::tell_callers`](crate::TargetBuilder::tell_callers).
///
/// Injected code is native code: what an exported function refuses it, it can do itself (`docs/security.md`).
// None of these is inlined: others would make the thread's pointer a symbol of the crate's, which takes each call two
// instructions more.
#[inline(never)]
pub fn principal() -> Option<Arc<Principal>> {
    with_principal(Arc::clone)
}

/// Returns [`Principal::number`] of the running call's [`principal`]. An exported function can compare it with the last one, at
/// the cost of reading a variable.
#[inline(never)]
pub fn principal_number() -> Option<u64> {
    with_principal(|principal| principal.number())
}

/// Returns the number of the link by which the call came that runs on this thread: [`Principal::link`] of its [`principal`].
#[inline(never)]
pub fn caller_number() -> Option<u64> {
    with_principal(|principal| principal.link()).flatten()
}

/// Returns the process whose call runs on this thread: [`Principal::peer`] of its [`principal`].
#[inline(never)]
pub fn caller() -> Option<Arc<PeerIdentity>> {
    with_principal(|principal| principal.peer().cloned()).flatten()
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

/// Has the target's store do something for the call on this thread. `None` if there is no store, or none runs; a panic of
/// the store's is caught.
///
/// The store is out of the context meanwhile, and no reference to the context is left. So the store's code may use the
/// context itself ([`at_call_end`], [`caller`]), and finds no second way to the store there.
fn with_store<T>(work: impl FnOnce(&mut dyn Objects) -> T) -> Option<thread::Result<T>> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference ends here.
    let mut objects = unsafe { &mut *context.as_ptr() }.objects.take()?;
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut *objects)));
    // SAFETY: the call has not ended, as it runs the service that has called this. What the store's code borrowed of the
    // context was given back before it returned.
    unsafe { &mut *context.as_ptr() }.objects = Some(objects);
    Some(done)
}

/// Answers a request to the target's store, whose source is the one of the context.
pub(super) fn request(request: Request<'_>) {
    let Some(current) = NonNull::new(CURRENT.get()) else { return };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference ends before the store runs.
    let context = unsafe { &mut *current.as_ptr() };
    let (source, limit, mut reply) = (context.source, context.limit, std::mem::take(&mut context.reply));
    // Read before the store is asked: what ends from here on rings once more.
    let rung = context.bell.as_ref().map_or(0, |bell| bell.count());
    let answered = with_store(|objects| objects.request(source, request, &mut reply, limit));
    // SAFETY: as above; the store has returned.
    let context = unsafe { &mut *current.as_ptr() };
    context.reply = reply;
    let failed = match answered {
        None => return,
        Some(Ok(Ok(Answer::Done))) if context.reply.len() <= limit => return,
        Some(Ok(Ok(Answer::Done))) => "the reply of the target's store is too long for this link".to_owned(),
        Some(Ok(Ok(answer))) => {
            let waits = answer == Answer::Wait && context.bell.is_some();
            context.unanswered = Some(if waits { Unanswered::Waits(rung) } else { Unanswered::Goes });
            "the target's store is at work: ask again".to_owned()
        }
        Some(Ok(Err(text))) => text,
        Some(Err(_)) => "the target's store failed: its log says why".to_owned(),
    };
    context.reply.clear();
    context.reply.extend_from_slice(&failed.as_bytes()[..failed.len().min(limit)]);
    (context.diverted, context.panicked) = (true, true);
}

/// Has the target's store find or make an object for the call on this thread.
fn with_objects(
    work: impl FnOnce(&mut dyn Objects) -> Result<Lent, ObjectError>,
) -> Result<Lent, ObjectError> {
    let found = with_store(work).ok_or(ObjectError::NoStore)?;
    let context = NonNull::new(CURRENT.get()).ok_or(ObjectError::NoStore)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.uses_objects) = (true, true);
    let found = found.unwrap_or(Err(ObjectError::NoStore));
    // Without a bell nothing would end the wait.
    context.forwarding.awaits_store |=
        found.is_err_and(|why| why == ObjectError::Spilled) && context.bell.is_some();
    found
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
        (context.diverted, context.panicked) = (true, true);
        enter::leave(context.way_out)
    }
}

#[cfg(test)]
mod tests;
