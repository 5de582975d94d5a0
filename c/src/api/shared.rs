//! Types common to sources and targets: modes, rights, causes of refusals, keys, and the identity of peers.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::LazyLock;

use farjump::{Key, Mode, PeerIdentity, RefusalCause, Rights};

use crate::api::c_text::c_text;
use crate::api::catch::{bytes, path};
use crate::api::last_error::Failure;

/// The way in which a call's code travels and runs. Options name the modes `cached`, `always`, `local` and
/// `in-place`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_mode_t {
    /// The code travels with its first call on a link; later calls name it by a number. The default of links.
    FARJUMP_MODE_CACHED = 1,
    /// The code travels with each call. The target compares it with its stored copy, and runs that copy.
    FARJUMP_MODE_ALWAYS = 2,
    /// The target has the library itself (farjump_target_config_add_local()): only the name travels.
    FARJUMP_MODE_LOCAL = 4,
    /// The code travels with each call, and runs in place, in the target's mailbox. Targets do not allow it by
    /// default: the bytes that the source has written run, regardless of the code id. Code with writable statics
    /// cannot run in place, nor can any code over a transport without a mailbox.
    FARJUMP_MODE_IN_PLACE = 8,
}

impl farjump_mode_t {
    const ALL: [(farjump_mode_t, Mode); 4] = [
        (farjump_mode_t::FARJUMP_MODE_CACHED, Mode::Cached),
        (farjump_mode_t::FARJUMP_MODE_ALWAYS, Mode::Always),
        (farjump_mode_t::FARJUMP_MODE_LOCAL, Mode::Local),
        (farjump_mode_t::FARJUMP_MODE_IN_PLACE, Mode::InPlace),
    ];

    /// Returns the mode with this number.
    pub(crate) fn one(number: c_int) -> Result<Mode, Failure> {
        let known = farjump_mode_t::ALL.into_iter().find(|(own, _)| *own as c_int == number);
        known.map(|(_, mode)| mode).ok_or_else(|| {
            Failure::argument(format!("{number} is no mode: give one of FARJUMP_MODE_CACHED and its kin"))
        })
    }
}

/// A right of a process that connects to a target. Each is a bit. The option `rights` names them `observe`,
/// `call`, `inject`, `drop` and `export`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_right_t {
    /// List the target's stored code, and read its statistics.
    FARJUMP_RIGHT_OBSERVE = 1,
    /// Make a link, and call functions that the target has already: its own by name, others by code id.
    FARJUMP_RIGHT_CALL = 2,
    /// Bring code to a link, in any mode. Without FARJUMP_RIGHT_CALL there is no link to bring it to.
    FARJUMP_RIGHT_INJECT = 4,
    /// Drop stored code of the target's, from any source.
    FARJUMP_RIGHT_DROP = 8,
    /// Have the target load libraries, and link code against them.
    FARJUMP_RIGHT_EXPORT = 16,
}

/// Returns the bits of rights.
pub(crate) fn rights_bits(rights: Rights) -> c_int {
    rights.bits().into()
}

/// The reason why a target did not run a call.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum farjump_refusal_cause_t {
    /// Lengths, offsets, kind or flags that no frame can have.
    FARJUMP_CAUSE_BAD_FRAME = 0,
    /// The rest of a frame that had begun did not come in time.
    FARJUMP_CAUSE_STALLED = 1,
    /// The image is damaged, or could never run.
    FARJUMP_CAUSE_BAD_IMAGE = 2,
    /// The code's hash is not the id that it came with.
    FARJUMP_CAUSE_ID_MISMATCH = 3,
    /// The image is for another instruction set.
    FARJUMP_CAUSE_WRONG_MACHINE = 4,
    /// The code imports a symbol that the target does not offer.
    FARJUMP_CAUSE_UNRESOLVED_IMPORT = 5,
    /// The target has no memory left, for code or for a large mailbox.
    FARJUMP_CAUSE_NO_ROOM = 6,
    /// The frame was made for an earlier run of the target.
    FARJUMP_CAUSE_STALE_EPOCH = 7,
    /// A code index without a binding.
    FARJUMP_CAUSE_UNKNOWN_INDEX = 8,
    /// The frame, or its payload, exceeds the target's limit.
    FARJUMP_CAUSE_TOO_LARGE = 9,
    /// The target requested the code and did not get it.
    FARJUMP_CAUSE_CODE_MISSING = 10,
    /// The code ran, and its reply exceeded the source's limit.
    FARJUMP_CAUSE_REPLY_TOO_LARGE = 11,
    /// The target's policy.
    FARJUMP_CAUSE_POLICY = 12,
    /// The ifunc's name is not valid: empty, too long, or with `/` or `..`.
    FARJUMP_CAUSE_NAME = 13,
    /// The code ran and called farjump_panic(), and it was a one-way call.
    FARJUMP_CAUSE_PANICKED = 14,
    /// The code ran and forwarded itself to a destination of the target, and no reply came.
    FARJUMP_CAUSE_FORWARD = 15,
    /// The source lacks a right that the call requires.
    FARJUMP_CAUSE_RIGHTS = 16,
}

/// Returns the number of a cause in C.
pub(crate) fn cause_number(cause: RefusalCause) -> c_int {
    cause.index() as c_int
}

/// Returns the cause of a number in C.
pub(crate) fn cause_of(number: c_int) -> Option<RefusalCause> {
    RefusalCause::ALL.get(usize::try_from(number).ok()?).copied()
}

/// Returns a few words for the number of a cause in C, as on the command line.
pub(crate) fn cause_words(number: c_int) -> &'static CStr {
    static WORDS: LazyLock<Vec<CString>> =
        LazyLock::new(|| RefusalCause::ALL.iter().map(|cause| c_text(&cause.to_string())).collect());
    let words = usize::try_from(number).ok().and_then(|index| WORDS.get(index));
    words.map_or(c"unknown cause", CString::as_c_str)
}

/// A peer process. The structure and the texts belong to the library; it may grow at its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct farjump_peer_t {
    /// Its process id, as the system reports it; 0 where it has none here. Over TCP as the peer reports it.
    pub pid: u32,
    /// Its effective user id; UINT32_MAX where the system does not know it: between machines.
    pub uid: u32,
    /// Name of the program. For people: the peer chose it.
    pub name: *const c_char,
    /// Its identity in words: name, process id, address, key.
    pub text: *const c_char,
    /// At a target, the operator's name of the key by which a source came; NULL if it needed none, or one
    /// without a name.
    pub key: *const c_char,
}

/// A peer's identity with its texts as C strings.
#[derive(Debug)]
pub(crate) struct Peer {
    peer: farjump_peer_t,
    _texts: ([CString; 2], Option<CString>),
}

// SAFETY: the pointers are to texts that the value owns, and that nothing changes.
unsafe impl Send for Peer {}
// SAFETY: the texts never change, so shared reads from several threads are sound.
unsafe impl Sync for Peer {}

impl Peer {
    pub(crate) fn of(identity: &PeerIdentity) -> Peer {
        // The heap holds the texts: they stay in place when the value moves.
        let texts = [c_text(&identity.name), c_text(&identity.to_string())];
        let [name, text] = [texts[0].as_ptr(), texts[1].as_ptr()];
        let own = identity.key.as_deref().map(c_text);
        let key = own.as_ref().map_or(std::ptr::null(), |key| key.as_ptr());
        let uid = identity.uid.unwrap_or(u32::MAX);
        Peer { peer: farjump_peer_t { pid: identity.pid, uid, name, text, key }, _texts: (texts, own) }
    }

    pub(crate) fn as_c(&self) -> &farjump_peer_t {
        &self.peer
    }
}

/// A pointer of the caller's that callbacks get back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User(*mut c_void);

// SAFETY: nothing here dereferences it. The header requires that a callback and its pointer may be used on any thread
// that uses the object that calls it.
unsafe impl Send for User {}
// SAFETY: nothing here does more than copy it.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(pointer: *mut c_void) -> User {
        User(pointer)
    }

    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Returns a key given as bytes.
///
/// # Safety
/// Unless it is NULL, `key` must be readable for 32 bytes.
pub(crate) unsafe fn key_of(key: *const u8) -> Result<Key, Failure> {
    let mut own = [0; Key::LEN];
    // SAFETY: this function's caller guarantees it.
    own.copy_from_slice(unsafe { bytes(key.cast(), Key::LEN, "key")? });
    Ok(Key::from_bytes(own))
}

/// Reads a key from a file.
///
/// # Safety
/// Unless it is NULL, `file` must be readable up to a zero byte.
pub(crate) unsafe fn key_in(file: *const c_char) -> Result<Key, Failure> {
    // SAFETY: this function's caller guarantees it.
    let file = unsafe { path(file, "path")? };
    Key::read(file).map_err(|error| Failure::from(farjump::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_the_numbers_of_the_header() {
        assert_eq!(RefusalCause::count(), farjump_refusal_cause_t::FARJUMP_CAUSE_RIGHTS as usize + 1);
        for (number, cause) in RefusalCause::ALL.into_iter().enumerate() {
            assert_eq!(cause_number(cause), number as c_int);
            assert_eq!(cause_of(number as c_int), Some(cause));
        }
        assert_eq!(
            cause_number(RefusalCause::Policy),
            farjump_refusal_cause_t::FARJUMP_CAUSE_POLICY as c_int
        );
        assert_eq!(
            cause_number(RefusalCause::Stalled),
            farjump_refusal_cause_t::FARJUMP_CAUSE_STALLED as c_int
        );
        assert_eq!(cause_words(5), c"unresolved import");
        assert_eq!((cause_words(-1), cause_words(17)), (c"unknown cause", c"unknown cause"));
        assert_eq!((cause_of(-1), cause_of(17)), (None, None));
    }

    #[test]
    fn rights_are_the_headers_bits() {
        let all = [
            (farjump_right_t::FARJUMP_RIGHT_OBSERVE, Rights::OBSERVE),
            (farjump_right_t::FARJUMP_RIGHT_CALL, Rights::CALL),
            (farjump_right_t::FARJUMP_RIGHT_INJECT, Rights::INJECT),
            (farjump_right_t::FARJUMP_RIGHT_DROP, Rights::DROP),
            (farjump_right_t::FARJUMP_RIGHT_EXPORT, Rights::EXPORT),
        ];
        assert_eq!(all.len(), Rights::all().iter().count());
        for (own, right) in all {
            assert_eq!(rights_bits(right), own as c_int);
        }
        assert_eq!(rights_bits(Rights::empty()), 0);
    }

    #[test]
    fn a_mode_is_one_of_the_headers_and_other_numbers_are_refused() {
        assert_eq!(farjump_mode_t::one(8).unwrap(), Mode::InPlace);
        for none in [0, 3, 16, -1, c_int::MIN] {
            assert!(farjump_mode_t::one(none).is_err(), "{none}");
        }
    }
}
