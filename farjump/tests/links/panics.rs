//! Panics of code that functions of the target have called back, and the arithmetic modes behind a call.

use std::ffi::c_void;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;

use crate::helper::{role, test_in_role, this_test};
use crate::support::{Pair, Place, library, panicked, serve, to_words};
use farjump::Mode;

/// A lock that the target's function holds while it calls back.
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
fn a_panic_after_finished_callbacks_fails_only_its_call() {
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
fn a_panic_through_a_function_not_injected_aborts_with_the_reason() {
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

/// A third of 1, as this thread rounds it, and the control word of x87.
fn third() -> (u64, u16) {
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut x87 = 0_u16;
    // SAFETY: it writes the variable.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack, preserves_flags));
    }
    ((black_box(1.0_f64) / black_box(3.0)).to_bits(), x87)
}

#[test]
fn a_poll_leaves_the_programs_rounding_whatever_its_calls_leave() {
    let place = Place::new();
    let modes = library("modes");
    let mut pair = Pair::of(place.target().modes([Mode::Cached, Mode::Always]), place.link());
    let before = third();
    for mode in [Mode::Cached, Mode::Always] {
        pair.link.set_mode(mode);
        // Twice: the first call in mode cached brings the code.
        for how in [b"u", b"p", b"a", b"u"] {
            match pair.call(&modes, how) {
                Err(error) => assert_eq!(panicked::<()>(Err(error), "modes"), "bad input"),
                Ok(reply) => assert_eq!(to_words(&reply)[0], before.0, "{mode:?}"),
            }
            assert_eq!(third(), before, "{mode:?} {how:?}");
        }
    }
    pair.link.set_mode(Mode::Cached);
    for how in [b"u", b"p"] {
        let mut batch = pair.link.batch();
        (0..16).for_each(|_| batch.send(&modes, how).unwrap());
        batch.finish().unwrap();
        // Each poll may run some of them.
        let mut ran = 0;
        while ran < 16 {
            ran += pair.target.poll().unwrap();
            assert_eq!(third(), before, "{how:?}");
        }
        // SAFETY: the function takes any payload.
        let own = unsafe { pair.target.call(&modes, how) };
        assert_eq!((own.is_ok(), third()), (how == b"u", before), "{how:?}");
    }
    // Frames of a source that is gone run when its link ends.
    pair.link.send(&modes, b"u").unwrap();
    let Pair { link, mut target } = pair;
    drop(link);
    while target.sources() != 0 {
        target.tend();
        serve(&mut target);
    }
    assert_eq!(third(), before);
}
