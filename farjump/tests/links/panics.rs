//! Panics of code that functions of the target have called back.

use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;

use crate::helper::{role, test_in_role, this_test};
use crate::support::{Pair, Place, library, panicked};

/// Held by the target's function while it calls back.
static LOCK: Mutex<()> = Mutex::new(());

extern "C" fn each(act: unsafe extern "C" fn(*mut c_void), with: *mut c_void) {
    let held = LOCK.lock().unwrap();
    // SAFETY: the ifunc passes a function of its own and that function's argument.
    unsafe { act(with) };
    drop(held);
}

fn pair(place: &Place) -> Pair<'static> {
    let each: extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void) = each;
    // SAFETY: the ifunc calls it by its true type.
    let target = unsafe { place.target().export_raw("each", each as *const c_void) };
    Pair::of(target.process_symbols(true), place.link())
}

#[test]
fn a_panic_leaves_what_is_injected_alone_and_goes_on_whatever_ran_before() {
    let place = Place::new();
    let mut pair = pair(&place);
    let callback = library("callback");
    for round in 0..100 {
        assert_eq!(*pair.call(&callback, b"-").unwrap(), *b"through", "{round}");
        for letter in [b"a", b"o"] {
            assert_eq!(panicked(pair.call(&callback, letter), "callback"), "no further");
            assert!(LOCK.try_lock().is_ok(), "nothing of `each` was left out");
        }
    }
}

#[test]
fn a_panic_across_a_function_that_is_not_injected_ends_the_process_and_says_why() {
    // The role is the place of the panic.
    if let [letter] = &*role() {
        let place = Place::new();
        let mut pair = pair(&place);
        let ended = pair.call(&library("callback"), letter.as_bytes());
        println!("left: {ended:?}, {:?}", LOCK.try_lock().is_ok());
        std::process::exit(9);
    }
    // The ended processes leave their files in here.
    let place = Place::new();
    for letter in ["e", "d", "q"] {
        let output = test_in_role(this_test!(), &[letter]).env("TMPDIR", place.path("")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{letter}: {said} {text}");
        assert!(text.contains("farjump: ") && text.contains("panic"), "{letter}: {text}");
        assert!(text.contains("no further") && text.contains("called back"), "{letter}: {text}");
    }
}
