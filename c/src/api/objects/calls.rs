//! Calls at objects that do not wait: started calls, an event loop's sleep, and calls at many objects.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use farjump_handles::{Error, Handle, Patience, PendingCall};

use crate::api::bytes::farjump_bytes_t;
use crate::api::catch::{bytes, duration, give, guarded, object, object_mut, place, take, value, variable};
use crate::api::last_error::Failure;
use crate::api::library::farjump_library_t;
use crate::api::objects::client::{both, deliver, farjump_client_t};
use crate::api::objects::handle::farjump_handle_t;
use crate::api::status::farjump_status_t::{self, *};

/// A call at an object that was started. It keeps the client that it came by. One thread uses it at a time.
#[derive(Debug)]
pub struct farjump_object_call_t {
    /// `None` once its outcome was taken, or it was cancelled.
    pending: Option<PendingCall>,
}

impl farjump_object_call_t {
    /// Takes the pending call, for its outcome or its end.
    fn take(&mut self) -> Result<PendingCall, Failure> {
        self.pending.take().ok_or_else(no_call)
    }
}

#[cold]
fn no_call() -> Failure {
    let text =
        "the outcome of this call at an object was taken before, or the call was cancelled: start another";
    Failure::new(FARJUMP_ERROR_NO_CALL, text)
}

/// Starts a call like that of farjump_client_call(), and returns before the function has run.
/// farjump_object_call_poll() or farjump_object_call_wait() takes the outcome. farjump_object_call_free()
/// ends the call.
///
/// Fails as farjump_client_call(); FARJUMP_ERROR_TOO_MANY when 32,768 calls of the client are pending.
/// Nothing was sent then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_start_call(
    client: *const farjump_client_t,
    library: *const farjump_library_t,
    handle: *const farjump_handle_t,
    args: *const c_void,
    args_size: usize,
    call: *mut *mut farjump_object_call_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, an open library, a handle, `args_size` bytes and a variable for a
    // pointer.
    guarded(|| unsafe {
        let made = variable(call, "call")?;
        let (client, handle) = both(client, handle)?;
        let (library, args) = (object(library, "library")?, bytes(args, args_size, "args")?);
        let pending = Some(client.start_call(library.rust(), handle, args)?);
        *made = give(farjump_object_call_t { pending });
        Ok(FARJUMP_OK)
    })
}

/// Polls once, without waiting: FARJUMP_NOT_YET if the outcome has not come; `reply` is unchanged then.
/// Otherwise it does the same as farjump_object_call_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_object_call_poll(
    call: *mut farjump_object_call_t,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a started call, and NULL or bytes, which nothing else uses.
    guarded(|| unsafe {
        let call = object_mut(call, "call")?;
        let polled = call.pending.as_mut().ok_or_else(no_call)?.poll();
        if matches!(polled, Ok(None)) {
            return Ok(FARJUMP_NOT_YET);
        }
        drop(call.take()?);
        deliver(polled.map(Option::unwrap_or_default), reply)?;
        Ok(FARJUMP_OK)
    })
}

/// Waits for the outcome, `timeout_ns` nanoseconds at most. `reply` receives the function's reply, and may be
/// NULL if it is not needed. There is no other outcome afterwards.
///
/// Fails as farjump_client_call(); FARJUMP_ERROR_TIMEOUT when the time limit passed (the call is then
/// cancelled), and FARJUMP_ERROR_NO_CALL when the outcome was taken before, or the call was cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_object_call_wait(
    call: *mut farjump_object_call_t,
    timeout_ns: u64,
    reply: *mut farjump_bytes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a started call, and NULL or bytes, which nothing else uses.
    guarded(|| unsafe {
        let pending = object_mut(call, "call")?.take()?;
        deliver(pending.wait(&mut Patience::of(duration(timeout_ns))), reply)?;
        Ok(FARJUMP_OK)
    })
}

/// Cancels the call: it still runs, and its outcome is dropped.
///
/// FARJUMP_ERROR_NO_CALL when the outcome was taken before, or the call was cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_object_call_cancel(call: *mut farjump_object_call_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a started call that nothing else uses.
        drop(unsafe { object_mut(call, "call")? }.take()?);
        Ok(FARJUMP_OK)
    })
}

/// Frees it, and sets the variable to NULL. Does nothing if it is NULL already. A call whose outcome was not
/// taken is cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_object_call_free(call: *mut *mut farjump_object_call_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with a started call, which nothing else uses.
        drop(unsafe { take(call, "call", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}

/// Returns the descriptor that becomes readable on an event while the client is armed: the outcome of a
/// started call, or the owner's end. The first call creates it. It stays the same, and ends with the client
/// and its calls. It belongs to the library: watch it, and neither read nor close it. -1 if `client` cannot
/// be used, or the system has no descriptor left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_fd(client: *const farjump_client_t) -> c_int {
    // SAFETY: the header requires a client.
    value(-1, || Ok(unsafe { object(client, "client")? }.rust().as_fd()?.as_raw_fd()))
}

/// Prepares to sleep in an event loop of the caller's until farjump_client_fd() becomes readable.
/// `longest_ns` becomes the longest time to sleep, in nanoseconds. It becomes 0 if an event has come since
/// the last time: poll the started calls then (farjump_object_call_poll()). farjump_client_disarm() follows
/// in any case.
///
/// A call by which another thread waits with the same client may take the event: the sleep then lasts its
/// longest time, which is a second at most. Give an event loop a client of its own.
///
/// FARJUMP_ERROR_PEER_GONE when the owner is gone. Outcomes that came before can still be taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_arm(
    client: *const farjump_client_t,
    longest_ns: *mut u64,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a client, and a place for a number.
        let (longest, client) =
            unsafe { (place(longest_ns, "longest_ns")?.write(0), object(client, "client")?) };
        if let Some(sleep) = client.rust().arm()? {
            *longest = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(FARJUMP_OK)
    })
}

/// Ends the sleep: the owner need not wake this process any more. Does nothing on a client that is not armed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_disarm(client: *const farjump_client_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a client.
        unsafe { object(client, "client")? }.rust().disarm()?;
        Ok(FARJUMP_OK)
    })
}

/// The outcomes of calls at many objects, in the order of their handles. Any number of threads may use them
/// at once.
#[derive(Debug)]
pub struct farjump_outcomes_t {
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    /// The reply. For a call that failed with FARJUMP_ERROR_INCOMPLETE, the replies that came.
    reply: Vec<u8>,
    failure: Option<Failure>,
}

impl farjump_outcomes_t {
    /// Gives C outcomes.
    pub(crate) fn give(outcomes: Vec<Result<Vec<u8>, Error>>) -> *mut farjump_outcomes_t {
        let outcome = |outcome| match outcome {
            Ok(reply) => Outcome { reply, failure: None },
            Err(error) => {
                let mut reply = Vec::new();
                let failure = Some(Failure::of_object_call(error, &mut reply));
                Outcome { reply, failure }
            }
        };
        give(farjump_outcomes_t { outcomes: outcomes.into_iter().map(outcome).collect() })
    }
}

/// Returns the handles of C's array.
///
/// # Safety
/// `handles` must be readable for `count` pointers, each of them NULL or a handle, for `'a`.
pub(crate) unsafe fn handles_in<'a>(
    handles: *const *const farjump_handle_t,
    count: usize,
) -> Result<Vec<&'a Handle>, Failure> {
    // SAFETY: this function's caller guarantees it.
    unsafe { bytes(handles.cast(), count.saturating_mul(size_of_val(&handles)), "handles")? };
    let handle = |index| {
        // SAFETY: this function's caller guarantees `count` pointers, each NULL or to a handle.
        let handle = unsafe { handles.add(index).read_unaligned().as_ref() };
        let handle = handle.ok_or_else(|| Failure::null(&format!("handles[{index}]")));
        handle.map(farjump_handle_t::rust)
    };
    (0..count).map(handle).collect()
}

/// Calls the function of `library` on `count` objects of this owner: farjump_client_call() for each, with
/// many calls under way at once. It returns when all calls have an outcome, each within the time of a request
/// (the option `timeout` of clients). A call that fails does not affect the others.
/// farjump_outcomes_free() ends the outcomes. farjump_resolver_map() takes handles of several owners.
///
/// FARJUMP_OK also when calls failed: farjump_outcomes_get() has the status of each. FARJUMP_ERROR_ARGUMENT
/// when a handle is NULL; nothing was sent then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_client_map(
    client: *const farjump_client_t,
    library: *const farjump_library_t,
    handles: *const *const farjump_handle_t,
    count: usize,
    args: *const c_void,
    args_size: usize,
    outcomes: *mut *mut farjump_outcomes_t,
) -> farjump_status_t {
    // SAFETY: the header requires a client, an open library, `count` handles, `args_size` bytes and a variable
    // for a pointer.
    guarded(|| unsafe {
        let made = variable(outcomes, "outcomes")?;
        let (client, library) = (object(client, "client")?, object(library, "library")?);
        let (handles, args) = (handles_in(handles, count)?, bytes(args, args_size, "args")?);
        *made = farjump_outcomes_t::give(client.rust().map(library.rust(), handles, args));
        Ok(FARJUMP_OK)
    })
}

/// Returns the number of outcomes: that of the handles. 0 if `outcomes` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_outcomes_count(outcomes: *const farjump_outcomes_t) -> usize {
    // SAFETY: the header requires outcomes.
    value(0, || Ok(unsafe { object(outcomes, "outcomes")? }.outcomes.len()))
}

/// Returns the status that farjump_client_call() would have returned for the call with this index, and sets
/// farjump_last_error() and farjump_last_cause() in the same way. `reply` becomes the function's reply and
/// `size` its number of bytes; either may be NULL if it is not needed. The bytes belong to the outcomes, and
/// end with them.
///
/// Fails as farjump_client_call(); FARJUMP_ERROR_ARGUMENT also for an index without an outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_outcomes_get(
    outcomes: *const farjump_outcomes_t,
    index: usize,
    reply: *mut *const c_void,
    size: *mut usize,
) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires NULL or variables.
        let put = |data: &[u8]| unsafe {
            if !reply.is_null() {
                reply.write(if data.is_empty() { c"".as_ptr().cast() } else { data.as_ptr().cast() });
            }
            if !size.is_null() {
                size.write(data.len());
            }
        };
        put(&[]);
        // SAFETY: the header requires outcomes.
        let outcomes = unsafe { object(outcomes, "outcomes")? };
        let outcome = outcomes.outcomes.get(index).ok_or_else(|| {
            let count = outcomes.outcomes.len();
            Failure::argument(format!("there is no outcome {index}: they are {count}, counted from 0"))
        })?;
        put(&outcome.reply);
        outcome.failure.clone().map_or(Ok(FARJUMP_OK), Err)
    })
}

/// Frees them, and sets the variable to NULL. Does nothing if it is NULL already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farjump_outcomes_free(outcomes: *mut *mut farjump_outcomes_t) -> farjump_status_t {
    guarded(|| {
        // SAFETY: the header requires a variable with outcomes, which nothing else uses.
        drop(unsafe { take(outcomes, "outcomes", |_| Ok(()))? });
        Ok(FARJUMP_OK)
    })
}
