//! The call that is running on this thread, as the services see it.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::enter::{self, Foreign, Main};
use super::forward_requests::{Forwarding, NotForwarded};
use super::lent_bytes::LentBytes;

thread_local! {
    static CURRENT: Cell<*mut Context> = const { Cell::new(ptr::null_mut()) };
}

/// State and results of a call. One for each target, reused: a call allocates only when its reply outgrows
/// all earlier ones.
#[derive(Debug)]
pub(crate) struct Context {
    /// Address of the called code.
    main: u64,
    /// Bytes given to `farjump_reply`, in order; after a panic its message.
    reply: Vec<u8>,
    /// Most bytes that a reply may have.
    limit: usize,
    /// Whether the reply is not to be sent: it got too long, or the call is to be forwarded.
    diverted: bool,
    panicked: bool,
    way_out: usize,
    /// Destinations of the call, and whether it is to be forwarded.
    forwarding: Forwarding,
}

/// The end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It returned.
    Returned,
    /// It called `farjump_panic`; the reply is the message.
    Panicked,
    /// It replied more than the limit; the reply is empty.
    ReplyTooLarge,
    /// It is to be forwarded to a destination, whose reply becomes its own; the reply here is empty.
    Forwarded,
}

impl Context {
    pub(crate) fn new() -> Self {
        Context {
            main: 0,
            reply: Vec::new(),
            limit: usize::MAX,
            diverted: false,
            panicked: false,
            way_out: 0,
            forwarding: Forwarding::default(),
        }
    }

    /// Reply of the last call.
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Destinations for calls, and the request of the last call.
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
        let left = unsafe { enter::enter(main, payload, size, args, &raw mut (*context).way_out) };
        CURRENT.set(outer);
        if left == 0 && !self.diverted {
            return Ended::Returned;
        }
        self.ended()
    }

    /// The end of a call that did not simply return.
    #[cold]
    fn ended(&mut self) -> Ended {
        if self.panicked {
            drop(self.forwarding.take());
            return Ended::Panicked;
        }
        self.reply.clear();
        if self.forwarding.is_asked() { Ended::Forwarded } else { Ended::ReplyTooLarge }
    }
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
    if context.diverted || bytes.len() > context.limit - context.reply.len() {
        context.diverted = true;
        return false;
    }
    bytes.append_to(&mut context.reply, usize::MAX);
    true
}

/// Forwards the call that runs on this thread to `peer`, once it returns.
pub(super) fn forward(peer: LentBytes<'_>, payload: LentBytes<'_>) -> Result<(), NotForwarded> {
    let context = CURRENT.get();
    if context.is_null() {
        return Err(NotForwarded::Twice);
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, as in `append`.
    let context = unsafe { &mut *context };
    context.forwarding.ask(peer, payload)?;
    context.diverted = true;
    Ok(())
}

/// The reason why a call was not ended.
pub(super) enum NotLeft {
    /// None runs on this thread.
    NoCall,
    /// It is inside this function, which is not injected.
    Across(Foreign),
}

/// Ends the call that runs on this thread, with a message that is cut at the limit; returns only if it
/// cannot. `slot` and `frame` locate the service's frame on the stack ([`enter::foreign`]).
pub(super) fn abandon(message: LentBytes<'_>, slot: usize, frame: usize) -> NotLeft {
    let context = CURRENT.get();
    if context.is_null() {
        return NotLeft::NoCall;
    }
    // SAFETY: `CURRENT` is not null only inside `Context::call`, and `way_out` was written by the `enter` of
    // this call, which has not returned; only this field is read.
    let way_out = unsafe { (&raw const (*context).way_out).read() };
    // SAFETY: the service was entered with these on the stack of this thread, inside that `enter`.
    if let Some(function) = unsafe { enter::foreign(slot, frame, way_out) } {
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
