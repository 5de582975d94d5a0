//! Errors for C: a status, and a text that each thread keeps until its next error.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::CString;

use farjump::config::ConfigError;
use farjump::{CallError, ConnectError, Error, InjectError, RefusalCause, ServeError, WaitError};
use farjump_handles::StreamFault;

use crate::api::c_text::c_text;
use crate::api::status::farjump_status_t::{self, *};

/// An error on its way to C. Boxed, so that results of successful calls travel in registers.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Box<Noted>);

#[derive(Clone, Debug)]
struct Noted {
    status: farjump_status_t,
    /// The cause, if the error is a target's refusal.
    cause: Option<RefusalCause>,
    text: String,
}

impl Failure {
    /// Returns the failure of a call with bad arguments.
    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(FARJUMP_ERROR_ARGUMENT, text)
    }

    /// Returns the failure of a call with NULL for this argument.
    #[cold]
    pub(crate) fn null(argument: &str) -> Failure {
        Failure::argument(format!("`{argument}` is NULL: was it closed, or making it not looked at?"))
    }

    /// Returns the failure of a call. Puts the replies, if the call has some nevertheless, into `content`.
    #[cold]
    pub(crate) fn of_call(error: Error, content: &mut Vec<u8>) -> Failure {
        if let Error::Call(CallError::Incomplete(incomplete)) = &error {
            content.extend_from_slice(&incomplete.replies);
        }
        error.into()
    }

    /// As [`Failure::of_call`], for a call at an object.
    #[cold]
    pub(crate) fn of_object_call(error: farjump_handles::Error, content: &mut Vec<u8>) -> Failure {
        match error {
            farjump_handles::Error::Link(error) => Failure::of_call(error, content),
            error => error.into(),
        }
    }

    #[cold]
    pub(crate) fn new(status: farjump_status_t, text: impl Into<String>) -> Failure {
        Failure(Box::new(Noted { status, cause: None, text: text.into() }))
    }

    /// Returns the failure of a call that panicked, with the panic's message.
    #[cold]
    pub(crate) fn panic(panic: &(dyn Any + Send)) -> Failure {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing");
        Failure::new(FARJUMP_ERROR_INTERNAL, format!("a bug in farjump, please report it: {said}"))
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let cause = error.refusal_cause();
        Failure(Box::new(Noted { status: status_of(&error), cause, text: error.to_string() }))
    }
}

impl From<ConfigError> for Failure {
    #[cold]
    fn from(error: ConfigError) -> Failure {
        Error::from(error).into()
    }
}

impl From<farjump_handles::Error> for Failure {
    #[cold]
    fn from(error: farjump_handles::Error) -> Failure {
        use farjump_handles::Error as E;
        let status = match error {
            E::Link(error) => return error.into(),
            E::Gone { .. } => FARJUMP_ERROR_GONE,
            E::WrongKey { .. } => FARJUMP_ERROR_WRONG_KEY,
            E::Unset { .. } => FARJUMP_ERROR_UNSET,
            E::Full { .. } | E::SourceFull { .. } => FARJUMP_ERROR_STORE_FULL,
            E::TimedOut { .. } => FARJUMP_ERROR_TIMEOUT,
            E::Unreachable(_) => FARJUMP_ERROR_CONNECT,
            E::Protocol { .. } => FARJUMP_ERROR_TRANSPORT,
            E::Stream { ref fault, .. } => status_of_stream(fault),
            E::Handle(_)
            | E::NotReserved { .. }
            | E::TypeName { .. }
            | E::Encode { .. }
            | E::Type { .. }
            | E::Forked { .. } => FARJUMP_ERROR_ARGUMENT,
            _ => FARJUMP_ERROR_SYSTEM,
        };
        Failure::new(status, error.to_string())
    }
}

fn status_of_stream(fault: &StreamFault) -> farjump_status_t {
    match fault {
        StreamFault::Full => FARJUMP_ERROR_TOPIC_FULL,
        StreamFault::PublisherGone { .. } => FARJUMP_ERROR_PUBLISHER_GONE,
        StreamFault::NoEntry(_) => FARJUMP_ERROR_TIMEOUT,
        StreamFault::Topics | StreamFault::Members | StreamFault::Holds { .. } => FARJUMP_ERROR_TOO_MANY,
        StreamFault::LongHandle { .. } => FARJUMP_ERROR_TOO_LARGE,
        StreamFault::InUse => FARJUMP_ERROR_BUSY,
        _ => FARJUMP_ERROR_ARGUMENT,
    }
}

fn status_of(error: &Error) -> farjump_status_t {
    match error {
        Error::Library(_) | Error::Inject(InjectError::PayloadOverrun { .. }) => FARJUMP_ERROR_LIBRARY,
        Error::Config(_) | Error::Connect(ConnectError::MailboxSize { .. }) | Error::Misaligned { .. } => {
            FARJUMP_ERROR_ARGUMENT
        }
        Error::Connect(_) => FARJUMP_ERROR_CONNECT,
        Error::Transport(_) => FARJUMP_ERROR_TRANSPORT,
        Error::Call(CallError::Refused { .. }) => FARJUMP_ERROR_REFUSED,
        Error::Call(CallError::Panicked { .. }) => FARJUMP_ERROR_PANICKED,
        Error::Call(CallError::Incomplete(_)) => FARJUMP_ERROR_INCOMPLETE,
        Error::Wait(WaitError::PeerGone { .. }) => FARJUMP_ERROR_PEER_GONE,
        Error::Wait(WaitError::TimedOut { .. }) => FARJUMP_ERROR_TIMEOUT,
        Error::Inject(InjectError::Full) => FARJUMP_ERROR_FULL,
        Error::Inject(InjectError::TooLarge { .. } | InjectError::OverLimit { .. }) => {
            FARJUMP_ERROR_TOO_LARGE
        }
        Error::Inject(InjectError::TooManyCalls { .. } | InjectError::TooManyFunctions) => {
            FARJUMP_ERROR_TOO_MANY
        }
        Error::Inject(InjectError::NotInPlace { .. }) => FARJUMP_ERROR_MODE,
        Error::Serve(
            ServeError::Limit { .. }
            | ServeError::InPlaceOfAllowed
            | ServeError::ForwardMode { .. }
            | ServeError::CpuLevel { .. }
            | ServeError::Forked { .. },
        )
        | Error::Wait(WaitError::Forked { .. }) => FARJUMP_ERROR_ARGUMENT,
        Error::Serve(ServeError::InsideCall) => FARJUMP_ERROR_BUSY,
        _ => FARJUMP_ERROR_SYSTEM,
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
    static LAST_CAUSE: Cell<Option<RefusalCause>> = const { Cell::new(None) };
}

/// Keeps the text for [`last`], and returns the status.
#[cold]
pub(crate) fn note(Failure(failure): Failure) -> farjump_status_t {
    keep(&failure.text, failure.cause);
    failure.status
}

/// Keeps the text for [`last`], and the cause for [`last_cause`].
#[cold]
pub(crate) fn keep(text: &str, cause: Option<RefusalCause>) {
    let text = c_text(text);
    // This drops the old text. A thread that is ending has no more use for it.
    let _ = LAST.try_with(|last| last.replace(Some(text)));
    let _ = LAST_CAUSE.try_with(|last| last.set(cause));
}

/// Returns the cause of the target's refusal, if that was this thread's last error.
pub(crate) fn last_cause() -> Option<RefusalCause> {
    LAST_CAUSE.try_with(Cell::get).ok().flatten()
}

/// Returns the text of this thread's last error: valid until the next one. Empty if there was none.
pub(crate) fn last() -> *const std::ffi::c_char {
    let noted = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    noted.ok().flatten().unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::api::catch::{guarded, value};

    fn said() -> String {
        // SAFETY: the text stays in place until this thread notes another.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_its_words_a_text() {
        assert_eq!(guarded(|| panic!("the {} broke", "spring")), FARJUMP_ERROR_INTERNAL);
        assert_eq!(said(), "a bug in farjump, please report it: the spring broke");
        assert_eq!(value(7, || panic!("again")), 7);
        assert_eq!(said(), "a bug in farjump, please report it: again");
    }

    #[test]
    fn a_transport_that_cannot_be_had_is_a_failure_to_connect() {
        for (address, transport) in [("unix:t.sock", "smoke-signals"), ("tcp:127.0.0.1:1", "shm")] {
            let error = farjump::Link::builder(address).transport(transport).connect().err().unwrap();
            assert_eq!(status_of(&error), FARJUMP_ERROR_CONNECT, "{error}");
        }
    }

    #[test]
    fn a_text_is_the_threads_own_and_stays_until_the_next_failure() {
        let failed = || guarded(|| Err(Failure::argument("a zero \0 byte")));
        assert_eq!(failed(), FARJUMP_ERROR_ARGUMENT);
        assert_eq!(guarded(|| Ok(FARJUMP_OK)), FARJUMP_OK);
        assert_eq!(said(), "a zero  byte");
        std::thread::spawn(|| assert_eq!(said(), "")).join().unwrap();
    }
}
