//! Calling code that a program has placed itself, without a target.

use std::ffi::c_void;

use farjump_loader::{Exports, LinkedImage};

use super::enter::Main;
use super::{Context, Ended, services};

/// Calls code that its user placed ([`farjump_loader::Store`]), as a target would: with the services of
/// `farjump_ifunc.h` around it. This is for interfaces that keep code and bring frames by their own means.
///
/// Making one costs nothing. A call may make another one inside it, with its own caller.
#[derive(Debug)]
pub struct DirectCaller(Context);

/// The end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome<'a> {
    /// It returned, with this reply.
    Returned(&'a [u8]),
    /// It called `farjump_panic` with this message.
    Panicked(&'a [u8]),
}

impl DirectCaller {
    /// A caller that has called nothing yet.
    pub fn new() -> DirectCaller {
        DirectCaller(Context::new())
    }

    /// Exports for code called by this: the services, and `memcpy` and the other three that always exist.
    pub fn exports() -> Exports {
        let mut exports = Exports::new();
        services::offer(&mut exports);
        exports
    }

    /// Calls the function of `linked`. Inside, `farjump_forward` finds no destination, and `farjump_again` no target.
    ///
    /// # Safety
    /// `payload` must be valid for reads and writes of `len` bytes during the call and aligned as the code requires.
    /// `target_args` must be as the code's author expects. The program that placed the code is responsible for its
    /// actions: native code in a process is trusted code (`docs/security.md`).
    pub unsafe fn call(
        &mut self,
        linked: &LinkedImage,
        payload: *mut c_void,
        len: usize,
        target_args: *mut c_void,
    ) -> CallOutcome<'_> {
        let main: Main = linked.main();
        self.0.note_modes();
        // SAFETY: the code is placed as long as `linked` is borrowed, and the caller guarantees the
        // arguments.
        let ended = unsafe { self.0.call(main, payload, len, target_args, usize::MAX) };
        self.0.restore_modes();
        match ended {
            Ended::Panicked => CallOutcome::Panicked(self.0.reply()),
            Ended::Returned | Ended::Held | Ended::ReplyTooLarge | Ended::Forwarded => {
                CallOutcome::Returned(self.0.reply())
            }
        }
    }
}

impl Default for DirectCaller {
    fn default() -> DirectCaller {
        DirectCaller::new()
    }
}
