//! Statuses of calls.

use std::ffi::{c_char, c_int};

use self::farjump_status_t::*;

/// The status of a call. 0 is success, numbers below 0 are errors: farjump_last_error() has the text.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_status_t {
    /// Success.
    FARJUMP_OK = 0,
    /// The result has not come yet, and nothing is wrong: try again.
    FARJUMP_NOT_YET = 1,
    /// The stream has ended, and nothing is wrong: all publishers have finished, and the subscriber has received
    /// all entries.
    FARJUMP_STREAM_END = 2,
    /// A bad argument: NULL where a value is required, a malformed name or number, choices that exclude each
    /// other. Nothing was done.
    FARJUMP_ERROR_ARGUMENT = -1,
    /// The object is in use: the call came from inside another call on it, from a callback, an injected function
    /// or a payload routine. Or the topic to discard has publishers or subscribers. Nothing was done.
    FARJUMP_ERROR_BUSY = -2,
    /// The pending call is not one of this link's, its outcome was taken already, or it was cancelled.
    FARJUMP_ERROR_NO_CALL = -3,
    /// The ifunc library cannot be opened, is malformed, has no code for the target's machine, or its payload
    /// routine failed. Nothing was sent.
    FARJUMP_ERROR_LIBRARY = -4,
    /// No connection. The address is malformed, no process listens there, or one does already. Or the target
    /// rejects this process, the two have no transport in common, a key is missing or wrong, or connecting took
    /// too long.
    FARJUMP_ERROR_CONNECT = -5,
    /// The transport failed.
    FARJUMP_ERROR_TRANSPORT = -6,
    /// The target refused the call: farjump_last_cause() returns the cause. Nothing ran, unless the cause is one
    /// that only shows afterwards.
    FARJUMP_ERROR_REFUSED = -7,
    /// The injected function called farjump_panic(): the text has its message.
    FARJUMP_ERROR_PANICKED = -8,
    /// The target has ended, or the connection to it has. Pending calls may or may not have run.
    FARJUMP_ERROR_PEER_GONE = -9,
    /// The time limit passed. A call that the function waited for is cancelled, and may still run.
    FARJUMP_ERROR_TIMEOUT = -10,
    /// There is no credit now, and the call does not wait: take replies, then try again. Nothing was sent.
    FARJUMP_ERROR_FULL = -11,
    /// The call exceeds the limit of the link or the target. Nothing was sent.
    FARJUMP_ERROR_TOO_LARGE = -12,
    /// 32,768 calls of the link are pending, or it has bound 65,536 different functions. Nothing was sent. For
    /// streams: the maximum of topics, publishers, subscribers or unreleased items is reached.
    FARJUMP_ERROR_TOO_MANY = -13,
    /// The code cannot run in the chosen mode. Nothing was sent.
    FARJUMP_ERROR_MODE = -14,
    /// The operating system refused an operation.
    FARJUMP_ERROR_SYSTEM = -15,
    /// A bug in farjump itself. The object that was used can only be closed.
    FARJUMP_ERROR_INTERNAL = -16,
    /// Calls that the function forwarded were lost: the text has their number and the reason of the first. The
    /// reply has the replies of the others.
    FARJUMP_ERROR_INCOMPLETE = -17,
    /// The object is gone: it was evicted, its lease has ended, or its owner has restarted.
    FARJUMP_ERROR_GONE = -18,
    /// The handle does not have the object's key.
    FARJUMP_ERROR_WRONG_KEY = -19,
    /// The object is reserved, and has no contents yet.
    FARJUMP_ERROR_UNSET = -20,
    /// The store has no memory for an object: the text has the bytes in use.
    FARJUMP_ERROR_STORE_FULL = -21,
    /// The topic stays full: its slowest subscriber has not advanced, or no subscriber has come. Nothing was
    /// published.
    FARJUMP_ERROR_TOPIC_FULL = -22,
    /// A publisher ended without finishing, and its further entries are missing. All entries that it published
    /// came before. Other publishers continue.
    FARJUMP_ERROR_PUBLISHER_GONE = -23,
}

impl farjump_status_t {
    const ALL: [farjump_status_t; 26] = [
        FARJUMP_OK,
        FARJUMP_NOT_YET,
        FARJUMP_STREAM_END,
        FARJUMP_ERROR_ARGUMENT,
        FARJUMP_ERROR_BUSY,
        FARJUMP_ERROR_NO_CALL,
        FARJUMP_ERROR_LIBRARY,
        FARJUMP_ERROR_CONNECT,
        FARJUMP_ERROR_TRANSPORT,
        FARJUMP_ERROR_REFUSED,
        FARJUMP_ERROR_PANICKED,
        FARJUMP_ERROR_PEER_GONE,
        FARJUMP_ERROR_TIMEOUT,
        FARJUMP_ERROR_FULL,
        FARJUMP_ERROR_TOO_LARGE,
        FARJUMP_ERROR_TOO_MANY,
        FARJUMP_ERROR_MODE,
        FARJUMP_ERROR_SYSTEM,
        FARJUMP_ERROR_INTERNAL,
        FARJUMP_ERROR_INCOMPLETE,
        FARJUMP_ERROR_GONE,
        FARJUMP_ERROR_WRONG_KEY,
        FARJUMP_ERROR_UNSET,
        FARJUMP_ERROR_STORE_FULL,
        FARJUMP_ERROR_TOPIC_FULL,
        FARJUMP_ERROR_PUBLISHER_GONE,
    ];

    fn words(self) -> &'static std::ffi::CStr {
        match self {
            FARJUMP_OK => c"done",
            FARJUMP_NOT_YET => c"not yet",
            FARJUMP_STREAM_END => c"end of the stream",
            FARJUMP_ERROR_ARGUMENT => c"an argument that cannot be",
            FARJUMP_ERROR_BUSY => c"in use by the call that this one came from",
            FARJUMP_ERROR_NO_CALL => c"no such call in flight",
            FARJUMP_ERROR_LIBRARY => c"unusable ifunc library",
            FARJUMP_ERROR_CONNECT => c"not connected",
            FARJUMP_ERROR_TRANSPORT => c"transport failed",
            FARJUMP_ERROR_REFUSED => c"refused by the target",
            FARJUMP_ERROR_PANICKED => c"panicked at the target",
            FARJUMP_ERROR_PEER_GONE => c"target gone",
            FARJUMP_ERROR_TIMEOUT => c"too late",
            FARJUMP_ERROR_FULL => c"no credit now",
            FARJUMP_ERROR_TOO_LARGE => c"too large",
            FARJUMP_ERROR_TOO_MANY => c"too many",
            FARJUMP_ERROR_MODE => c"wrong mode for the code",
            FARJUMP_ERROR_SYSTEM => c"system error",
            FARJUMP_ERROR_INTERNAL => c"bug in farjump",
            FARJUMP_ERROR_INCOMPLETE => c"calls that it led to were lost",
            FARJUMP_ERROR_GONE => c"object gone",
            FARJUMP_ERROR_WRONG_KEY => c"another key than the object's",
            FARJUMP_ERROR_UNSET => c"object without contents yet",
            FARJUMP_ERROR_STORE_FULL => c"no memory for the object",
            FARJUMP_ERROR_TOPIC_FULL => c"topic full",
            FARJUMP_ERROR_PUBLISHER_GONE => c"publisher gone without finishing",
        }
    }
}

/// Returns a few words for a status; "unknown status" for any other number. The text is constant. Any thread
/// may call this.
#[unsafe(no_mangle)]
pub extern "C" fn farjump_status_string(status: c_int) -> *const c_char {
    let known = farjump_status_t::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"unknown status", farjump_status_t::words).as_ptr()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn each_status_has_its_own_text_and_other_numbers_are_unknown() {
        // SAFETY: the texts are constants.
        let words = |status| unsafe { CStr::from_ptr(farjump_status_string(status)) };
        let all: std::collections::HashSet<_> =
            farjump_status_t::ALL.into_iter().map(|status| words(status as c_int)).collect();
        assert_eq!(all.len(), farjump_status_t::ALL.len());
        for none in [3, -24, c_int::MIN, c_int::MAX] {
            assert_eq!(words(none), c"unknown status");
        }
    }
}
