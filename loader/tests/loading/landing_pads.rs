//! Code with landing pads, where the processor checks them (BTI of aarch64).

use std::mem;
use std::process::Command;
use std::ptr;

use crate::code::{INCREMENT, image, text};
use farjump_core::image::{ImageParts, ImageView};
use farjump_fixtures::forked::code_of_child;
use farjump_fixtures::helper_process::{RUNNER, in_roles, role};
use farjump_fixtures::this_test;
use farjump_loader::{Arena, Block, Error};

/// `bti c`
const PAD: [u8; 4] = 0xd503_245f_u32.to_le_bytes();
const ARENA: usize = 64 * 1024;

/// An image of a landing pad and [`INCREMENT`], which states that it has landing pads if `landing_pads`.
fn padded(landing_pads: bool) -> Vec<u8> {
    let span1 = [&PAD[..], &INCREMENT].concat();
    ImageParts { landing_pads, ..text(&span1) }.encode().unwrap()
}

fn place(arena: &Arena, image: &[u8]) -> Block {
    arena.place(&ImageView::new_checked(image).unwrap(), |_| None).unwrap()
}

/// Calls [`INCREMENT`] at `address`.
fn increments(address: u64) -> bool {
    let mut number = 41;
    // SAFETY: the caller holds a block with that code, which adds one to the word at its third argument.
    unsafe {
        let main: unsafe extern "C" fn(*mut u8, usize, *mut u64) = mem::transmute(address as usize);
        main(ptr::null_mut(), 0, &raw mut number);
    }
    number == 42
}

/// Returns whether the processor checks landing pads.
fn are_checked() -> bool {
    let checked = std::arch::is_aarch64_feature_detected!("bti");
    if !checked {
        eprintln!("skipped: this processor has no BTI");
    }
    checked
}

#[test]
fn a_call_past_a_landing_pad_faults_in_images_with_them() {
    if !are_checked() {
        return;
    }
    // The child places the code itself, because copies of its parent's code are not guarded.
    let end = |make: fn(usize) -> Result<Arena, Error>, landing_pads, skipped| {
        code_of_child(|| {
            let arena = make(ARENA).unwrap();
            let block = place(&arena, &padded(landing_pads));
            i32::from(!increments(block.entry() + skipped))
        })
    };
    for make in [Arena::new, Arena::for_debuggers] {
        assert_eq!(end(make, true, 0), 0);
        assert_eq!(end(make, true, 4), 128 + libc::SIGILL);
        assert_eq!(end(make, false, 0), 0);
        assert_eq!(end(make, false, 4), 0);
    }
}

#[test]
fn the_pages_of_dropped_code_are_free_for_code_without_landing_pads() {
    for arena in [Arena::new(ARENA).unwrap(), Arena::for_debuggers(ARENA).unwrap()] {
        let mut last = None;
        for landing_pads in [true, false, true, false] {
            let bytes = if landing_pads { padded(true) } else { image(&INCREMENT) };
            let block = place(&arena, &bytes);
            assert!(last.is_none_or(|last| last == block.entry()), "they lie in the same place");
            last = Some(block.entry());
            assert!(increments(block.entry()));
        }
        assert_eq!(arena.used(), 0);
    }
}

#[test]
fn code_with_landing_pads_shares_no_page_and_other_code_does() {
    if !are_checked() {
        return;
    }
    // SAFETY: it may always be called.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let arena = Arena::new(ARENA).unwrap();
    let blocks =
        [image(&INCREMENT), padded(true), image(&INCREMENT), padded(true)].map(|image| place(&arena, &image));
    assert!(blocks.iter().all(|block| increments(block.entry())));
    let [first, second, third, fourth] = blocks.map(|block| block.address() / page);
    assert_eq!(first, third);
    assert!(second != first && fourth != first && second != fourth);

    let arena = Arena::new(ARENA).unwrap();
    let blocks: Vec<_> = (0..ARENA as u64 / page).map(|_| place(&arena, &padded(true))).collect();
    assert_eq!(arena.used(), ARENA);
    let (bytes, plain) = (padded(true), image(&INCREMENT));
    for image in [bytes, plain] {
        let full = arena.place(&ImageView::new_checked(&image).unwrap(), |_| None).unwrap_err();
        assert!(matches!(full, Error::ArenaFull { .. }), "{full}");
    }
    drop(blocks);
    assert_eq!(arena.used(), 0);
}

#[test]
fn a_processor_without_checks_runs_code_with_landing_pads() {
    if role().is_empty() && std::env::var_os(RUNNER).is_none() {
        eprintln!("skipped: only the emulator can be another processor");
        return;
    }
    let old = |command: &mut Command, _: &str| {
        command.env("QEMU_CPU", "cortex-a57");
    };
    if in_roles(this_test!(), &["old"], old).is_some() {
        assert!(!std::arch::is_aarch64_feature_detected!("bti"));
        let arena = Arena::new(ARENA).unwrap();
        let [first, second] = [(); 2].map(|()| place(&arena, &padded(true)));
        assert!(increments(first.entry()) && increments(first.entry() + 4));
        assert!(second.address() - first.address() < 4096, "they share a page");
    }
}
