//! Other architectures, on which no code is placed.

use std::ffi::c_void;

use super::Main;

pub(crate) unsafe fn enter(_: Main, _: *mut c_void, _: usize, _: *mut c_void, _: *mut usize) {
    unreachable!("the store places no code on an architecture that icache::supported refuses")
}

pub(crate) unsafe extern "C" fn leave(_: usize) -> ! {
    unreachable!("only called from inside `enter`")
}

pub(crate) unsafe fn redirect(_: usize, _: extern "C" fn() -> !) {}

pub(super) unsafe fn return_address(_: usize) -> usize {
    0
}

/// The modes of arithmetic that a function preserves: none are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlWords;

impl ControlWords {
    pub(crate) const DEFAULT: ControlWords = ControlWords;

    pub(crate) unsafe fn note_at<const AT: usize>(_: *mut u8) {}

    pub(crate) unsafe fn set_at<const AT: usize>(_: *const u8) {}

    pub(crate) fn is(self, _: ControlWords) -> bool {
        true
    }
}

/// The bytes between the frame record of a function and its frame pointer.
pub(super) const RECORD: usize = 0;

pub(super) fn stripped(address: usize) -> usize {
    address
}

pub(super) fn is_return_address(_: usize) -> bool {
    false
}
