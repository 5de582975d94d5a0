//! Failures that a test expects: each check takes the outcome, and returns the text for people.

use farjump::{CallError, ConnectError, Error, RefusalCause, WaitError};
use farjump_control::{HandshakeError, RejectCause};

#[track_caller]
fn error_of<T>(outcome: Result<T, Error>) -> Error {
    match outcome {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error,
    }
}

/// Checks that a wait ended by its deadline.
#[track_caller]
pub(crate) fn timed_out<T>(outcome: Result<T, Error>) -> String {
    let error = error_of(outcome);
    assert!(matches!(error, Error::Wait(WaitError::TimedOut { .. })), "{error}");
    error.to_string()
}

/// Checks that the target is gone.
#[track_caller]
pub(crate) fn peer_gone<T>(outcome: Result<T, Error>) -> String {
    let error = error_of(outcome);
    assert!(matches!(error, Error::Wait(WaitError::PeerGone { .. })), "{error}");
    error.to_string()
}

/// Checks that a frame of this ifunc was refused for this cause.
#[track_caller]
pub(crate) fn refused<T>(outcome: Result<T, Error>, by_name: &str, for_cause: RefusalCause) -> String {
    match error_of(outcome) {
        Error::Call(CallError::Refused { ifunc, cause, text }) => {
            assert_eq!((&*ifunc, cause), (by_name, for_cause), "{text}");
            text
        }
        other => panic!("{other}"),
    }
}

/// Checks that this ifunc panicked, and returns its message.
#[track_caller]
pub(crate) fn panicked<T>(outcome: Result<T, Error>, by_name: &str) -> String {
    let error = error_of(outcome);
    let text = error.to_string();
    match error {
        Error::Call(CallError::Panicked { ifunc, message }) => {
            assert_eq!(ifunc, by_name, "{message}");
            assert_eq!(text, format!("`{by_name}` panicked at the target: {message}"));
            message
        }
        other => panic!("{other}"),
    }
}

/// Checks that the target rejected a handshake or an admin request for this cause.
#[track_caller]
pub(crate) fn rejected<T>(outcome: Result<T, Error>, for_cause: RejectCause) -> String {
    match error_of(outcome) {
        Error::Connect(ConnectError::Handshake(HandshakeError::Refused { cause, text, .. })) => {
            assert_eq!(cause, for_cause, "{text}");
            text
        }
        other => panic!("{other}"),
    }
}
