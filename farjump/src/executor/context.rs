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
use crate::objects::{Bell, Lent, ObjectError, Objects, Postponed, Request, RequestState};
use crate::principals::Principal;

thread_local! {
    static CURRENT: Cell<*mut Context> = const { Cell::new(ptr::null_mut()) };
}

/// State and results of a call. One for each target, reused: a call allocates only when its reply outgrows
/// all earlier ones.
// `exit_point` comes first, because each call needs its address and that of the whole: they are the same. The other fields
// that every call uses follow in the same line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Context {
    exit_point: usize,
    /// Address of the called code.
    main: u64,
    /// Bytes given to `farjump_reply`, in order; after a panic its message.
    reply: Vec<u8>,
    /// Most bytes that a reply may have.
    limit: usize,
    /// The third argument of a target's calls.
    pub(super) target_args: *mut c_void,
    /// True if the end of the call takes more than to send the reply, for example if the reply got too long or the call
    /// forwards itself.
    diverted: bool,
    panicked: bool,
    /// The program's modes of arithmetic, noted at the beginning of a poll or call.
    modes: ControlWords,
    /// Whether the reply got too long. Valid only with `diverted`.
    overflowed: bool,
    /// Whether the target holds the running call's reply.
    holds: bool,
    /// Whether the running call has used the store.
    uses_objects: bool,
    /// True if frames run for the principals of their sources. Otherwise they run for none.
    pub(super) exposes_callers: bool,
    /// Destinations of the call, and the messages that it sends.
    // Boxed, so that the fields behind it lie near those that each call uses.
    forwarding: Box<Forwarding>,
    /// Memory for the copy that a call requests, kept for the next one.
    copy: Vec<u8>,
    /// The target's store.
    pub(super) objects: Option<Box<dyn Objects>>,
    /// The source of a request to the store.
    pub(super) source: u64,
    /// State of the last request to the store, if the store has not responded to it.
    pub(super) postponed: Option<Postponed>,
    /// The store's bell, if the store postpones requests.
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
    /// It returned, and the target holds its reply.
    Held,
    /// It called `farjump_panic`; the reply is the message.
    Panicked,
    /// It replied more than the limit; the reply is empty.
    ReplyTooLarge,
    /// It forwards itself, by the requests of [`Forwarding::take`], whose replies become part of its own.
    Forwarded,
}

impl Context {
    pub(crate) fn new() -> Self {
        fork::watch(end_process_with_call);
        Context {
            exit_point: 0,
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
            exposes_callers: false,
            forwarding: Box::default(),
            copy: Vec::new(),
            objects: None,
            source: 0,
            postponed: None,
            bell: None,
            at_end: None,
            principal: None,
        }
    }

    /// Reply of the last call.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Sets the principal of calls from now on. Returns the earlier one.
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
        // SAFETY: the caller guarantees `main`; `exit_point` is a field of a live value. Inside, the services
        // reach this value through `CURRENT` while nothing here touches it.
        unsafe { enter::enter(main, payload, size, args, &raw mut (*context).exit_point) };
        CURRENT.set(outer);
        if !self.diverted {
            return Ended::Returned;
        }
        self.ended()
    }

    /// Ends a call that did not simply return.
    #[cold]
    fn ended(&mut self) -> Ended {
        // The code that runs here is the program's.
        self.restore_modes();
        let overflowed = std::mem::take(&mut self.overflowed);
        let returned = !self.panicked && !overflowed;
        let work = self.at_end.take();
        if let Some(work) = work
            && catch_unwind(work).is_err()
        {
            log::error!("what the program does at the end of a call has panicked");
        }
        // Each request of the call has its own copy of this flag.
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
        self.forwarding.drop_requests();
        if self.panicked {
            return Ended::Panicked;
        }
        self.reply.clear();
        Ended::ReplyTooLarge
    }
}

/// Runs `work` after the call that runs on this thread has ended, however it ends, and before the target sends its
/// reply. This is for functions that a program exports and that lend something to injected code until its end. If
/// `work` is set several times, the last counts. Returns `false`, and runs nothing, if no call runs on this thread.
///
/// A call without such work pays nothing.
pub fn at_call_end(work: fn()) -> bool {
    let Some(context) = NonNull::new(CURRENT.get()) else { return false };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.at_end) = (true, Some(work));
    true
}

/// Holds the reply of the call that runs on this thread until
/// [`Target::release_replies`](crate::Target::release_replies), and with it the confirmation to its source that the
/// call has run ([`Link::flush`](crate::Link::flush)).
///
/// This is for functions that a program exports and whose effect is durable, or visible to others, only later: an
/// append to a log. A call that forwards itself has one reply with the calls that it leads to. That reply waits for the
/// holds of all of them that ran here. A call that panics or replies too much does not hold its own reply. Returns
/// `false` if no call runs on this thread.
pub fn hold_reply() -> bool {
    let Some(context) = NonNull::new(CURRENT.get()) else { return false };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    (context.diverted, context.holds) = (true, true);
    true
}

/// Appends a copy of `bytes` to the reply of the call that runs on this thread, as `farjump_reply` does. This is for
/// functions that a program exports and that reply in the name of their callers. Returns `false`, and appends nothing,
/// if the reply would exceed the target's limit, or no call runs on this thread.
pub fn reply(bytes: &[u8]) -> bool {
    append(bytes.into())
}

/// Applies `work` to the principal of the call that runs on this thread. `work` calls no service.
fn with_principal<T>(work: impl FnOnce(&Arc<Principal>) -> T) -> Option<T> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. Only this field is read, and the reference ends
    // with `work`.
    let principal = unsafe { &(*context.as_ptr()).principal };
    principal.as_ref().map(work)
}

/// Returns the principal of the call that runs on this thread, for exported functions that allow one principal more
/// than another. A call that another target forwarded runs for that target. A call that a function sent to its own
/// target again, or to code that it made, runs for the principal of that function's call, even if its link has ended.
///
/// `None` if no call runs, and for calls of links in targets without
/// [`TargetBuilder::expose_callers`](crate::TargetBuilder::expose_callers).
///
/// Injected code is native code: it can do itself whatever an exported function refuses to do (`docs/security.md`).
// None of these is inlined. Otherwise the thread's pointer would become a symbol of the crate, which costs each call
// two more instructions.
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

/// Returns the number of the link of the call that runs on this thread: [`Principal::link`] of its [`principal`].
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

/// Makes the call that runs on this thread end the process when it returns or panics. This is for a forked child.
extern "C" fn end_process_with_call() {
    let context = CURRENT.get();
    if context.is_null() {
        return;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, and `exit_point` was written by the `enter` of
    // this call, which has not returned: the fork was made inside it. Only this field is read.
    unsafe { enter::redirect((&raw const (*context).exit_point).read(), end_of_child) };
}

/// Ends a call in a forked child.
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

/// Copies `bytes` to memory of the context, at a multiple of `align` bytes. The copy is valid until the call that runs
/// on this thread ends or requests another one. `None` if no call runs, `align` is no power of two up to [`MAX_ALIGN`],
/// or there is no memory.
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

/// Forwards the call that runs on this thread to `peer` once it returns. If `peer` is `None`, the call runs again here.
pub(super) fn forward(peer: Option<LentBytes<'_>>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
    let context = CURRENT.get();
    if context.is_null() {
        return Err(NotForwarded::TooOften);
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context };
    let requested = match peer {
        Some(peer) => context.forwarding.forward(peer, payload),
        None => context.forwarding.repeat(payload),
    };
    // The target reports a call that would have gone too far to its source.
    context.diverted |= matches!(requested, Ok(()) | Err(NotForwarded::TooFar));
    requested
}

/// Takes code that the call on this thread has made. Returns its id.
pub(super) fn make(code: LentBytes<'_>) -> Result<CodeId, NotForwarded> {
    let context = NonNull::new(CURRENT.get()).ok_or(NotForwarded::TooOften)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    // The end of the call drops code that no message uses.
    context.diverted |= context.forwarding.makes.is_some();
    context.forwarding.make(code)
}

/// Sends a message to other code, at `peer` or here, once the call on this thread returns.
pub(super) fn inject(code: CodeId, peer: LentBytes<'_>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
    let context = NonNull::new(CURRENT.get()).ok_or(NotForwarded::TooOften)?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context.as_ptr() };
    let requested = context.forwarding.inject(code, peer, payload);
    context.diverted |= matches!(requested, Ok(()) | Err(NotForwarded::TooFar));
    requested
}

/// Runs `work` on the target's store for the call on this thread. `None` if there is no store, or no call runs. Catches
/// a panic of the store.
///
/// Meanwhile the store is not in the context, and no reference to the context is left. So the store's code may use the
/// context itself ([`at_call_end`], [`caller`]), and finds no second way to the store there.
fn with_store<T>(work: impl FnOnce(&mut dyn Objects) -> T) -> Option<thread::Result<T>> {
    let context = NonNull::new(CURRENT.get())?;
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference ends here.
    let mut objects = unsafe { &mut *context.as_ptr() }.objects.take()?;
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut *objects)));
    // SAFETY: the call has not ended, as it runs the service that has called this. Every borrow of the context by the
    // store's code ended before that code returned.
    unsafe { &mut *context.as_ptr() }.objects = Some(objects);
    Some(done)
}

/// Passes a request to the target's store, for the source of the context.
pub(super) fn request(request: Request<'_>) {
    let Some(current) = NonNull::new(CURRENT.get()) else { return };
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference ends before the store runs.
    let context = unsafe { &mut *current.as_ptr() };
    let (source, limit, mut reply) = (context.source, context.limit, std::mem::take(&mut context.reply));
    // Read before the request: work that ends after this point rings the bell once more.
    let rung = context.bell.as_ref().map_or(0, |bell| bell.count());
    let answered = with_store(|objects| objects.request(source, request, &mut reply, limit));
    // SAFETY: as above; the store has returned.
    let context = unsafe { &mut *current.as_ptr() };
    context.reply = reply;
    let failed = match answered {
        None => return,
        Some(Ok(Ok(RequestState::Done))) if context.reply.len() <= limit => return,
        Some(Ok(Ok(RequestState::Done))) => {
            "the reply of the target's store is too long for this link".to_owned()
        }
        Some(Ok(Ok(answer))) => {
            let waits = answer == RequestState::Wait && context.bell.is_some();
            context.postponed = Some(if waits { Postponed::Waits(rung) } else { Postponed::NextPoll });
            "the target's store is at work: ask again".to_owned()
        }
        Some(Ok(Err(text))) => text,
        Some(Err(_)) => "the target's store failed: its log says why".to_owned(),
    };
    context.reply.clear();
    context.reply.extend_from_slice(&failed.as_bytes()[..failed.len().min(limit)]);
    (context.diverted, context.panicked) = (true, true);
}

/// Runs `work`, with which the target's store finds or makes an object for the call on this thread.
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

/// Returns the object of a handle, for the call on this thread.
pub(super) fn object(handle: Request<'_>) -> Result<Lent, ObjectError> {
    with_objects(|objects| objects.resolve(handle))
}

/// Makes an object of `len` bytes for the call on this thread.
pub(super) fn new_object(len: usize) -> Result<Lent, ObjectError> {
    with_objects(|objects| objects.create(len))
}

/// The reason why a call was not ended.
pub(super) enum NotLeft {
    /// No call runs on this thread.
    NoCall,
    /// The call is inside this function, which is not injected.
    Across(Foreign),
}

/// Ends the call that runs on this thread, with a message that is cut at the limit; returns only if it
/// cannot. `caller` called the service.
pub(super) fn abandon(message: LentBytes<'_>, caller: Caller) -> NotLeft {
    let context = CURRENT.get();
    if context.is_null() {
        return NotLeft::NoCall;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, and `exit_point` was written by the `enter` of
    // this call, which has not returned; only this field is read.
    let exit_point = unsafe { (&raw const (*context).exit_point).read() };
    // SAFETY: the caller runs on this thread, inside that `enter`.
    if let Some(function) = unsafe { enter::foreign(caller, exit_point) } {
        return NotLeft::Across(function);
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`. The reference is not used
    // after the jump, and owns nothing. `exit_point` was written by the `enter` of this call, which has not
    // returned. Between it and here there are only injected code and the service that called this: `foreign`
    // has found nothing else, and where it cannot see, the author of the code guarantees it (see `call`).
    unsafe {
        let context = &mut *context;
        context.reply.clear();
        message.append_to(&mut context.reply, context.limit);
        (context.diverted, context.panicked) = (true, true);
        enter::leave(context.exit_point)
    }
}

#[cfg(test)]
mod tests;
