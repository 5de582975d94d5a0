//! Slots in memory of this process, written as senders write them, and as no sender should.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use farjump_builder::{Options, build, link_library};
use farjump_core::image::{Machine, Platform};
use farjump_loader::Library;
use farjump_ucx_sys::{
    UCS_ERR_CANCELED, UCS_ERR_INVALID_ADDR, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_ELEM, UCS_ERR_NO_MESSAGE,
    UCS_ERR_NO_RESOURCE, UCS_ERR_TIMED_OUT, UCS_OK, ucs_status_t,
};

use super::frame::{self, Key};
use super::ifunc::{self, Ifunc, Source};
use super::message::{self, Message};
use super::symbols::offer;
use super::{poll, send};

/// Adds up the words of its payload, and counts its calls.
const SUM: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(sum)
FARJUMP_IFUNC void sum_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t *seen = target_args;
    seen[0]++;
    for (size_t i = 0; i < payload_size / 8; i++)
        seen[1] += ((uint64_t *)payload)[i];
}";
const PANICS: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(panics)
FARJUMP_IFUNC void panics_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size, (void)target_args;
    farjump_panic(\"no more\", 7);
}";
const ALIGNED: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(aligned)
FARJUMP_PAYLOAD_ALIGN(aligned, 256);
FARJUMP_IFUNC void aligned_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload_size;
    *(uint64_t *)target_args = (uintptr_t)payload % 256 == 0;
}";
const LACKING: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(lacking)
void nobody_has_this(void);
FARJUMP_IFUNC void lacking_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload, (void)payload_size, (void)target_args;
    nobody_has_this();
}";

/// Returns an ifunc of this source; `None`, with a message, where there is no C compiler.
fn ifunc(name: &str, source: &str) -> Option<Ifunc> {
    if !farjump_tools::all_work(&["cc"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join(format!("{name}.c")), folder.path().join(format!("{name}.so")));
    std::fs::write(&input, source).unwrap();
    build(&Options { inputs: vec![input], output: output.clone(), ..Options::default() }).unwrap();
    Some(Ifunc::new(name, {
        // SAFETY: it was built above.
        Source::of_library(unsafe { Library::load_named(&output, name) }.unwrap())
    }))
}

/// Returns an ifunc that adds up a number, for this machine and another one.
fn fat(name: &str, number: u32) -> Option<Ifunc> {
    if !farjump_tools::all_work(&["clang"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("fat.c");
    let text = format!(
        "void {name}_main(void *payload, unsigned long size, void *target) {{ (void)payload; (void)size; \
         ((unsigned long *)target)[0] += {number}; }}"
    );
    std::fs::write(&source, text).unwrap();
    let objects = [Machine::X86_64, Machine::AARCH64].map(|machine| {
        let object = folder.path().join("fat.o");
        let mut clang = std::process::Command::new("clang");
        clang.arg(format!("--target={}", machine.triple())).args(["-O2", "-fPIC", "-c"]).arg(&source);
        assert!(clang.arg("-o").arg(&object).status().unwrap().success());
        (Platform::baseline(machine), std::fs::read(object).unwrap())
    });
    let library = link_library(name, source, objects.to_vec()).unwrap();
    Some(Ifunc::new(name, Source::of_library(library)))
}

/// Memory for slots.
struct Slots(Vec<u64>);

impl Slots {
    fn new() -> Slots {
        Slots(vec![0; 4096])
    }

    fn at(&mut self, word: usize) -> *mut u8 {
        self.0[word..].as_mut_ptr().cast()
    }

    fn address(&self, word: usize) -> u64 {
        self.0[word..].as_ptr().addr() as u64
    }

    /// Returns the status of a poll of the slot at this word, and the text of an error.
    fn poll<T>(&mut self, word: usize, args: &mut T) -> (ucs_status_t, String) {
        let space = (self.0.len() - word) * 8;
        self.poll_of(word, space, args)
    }

    fn poll_of<T>(&mut self, word: usize, space: usize, args: &mut T) -> (ucs_status_t, String) {
        // SAFETY: the slot lies in the vector; the functions of these tests take the arguments given here.
        match unsafe { poll::poll(self.at(word).cast(), space, (&raw mut *args).cast(), offer) } {
            Ok(status) => (status, String::new()),
            Err(refused) => (refused.status, refused.text),
        }
    }

    /// Stores a message as a source does that has the memory mapped. Returns the length of the frame.
    fn store(&mut self, word: usize, message: &Message) -> Result<usize, ucs_status_t> {
        let address = self.address(word);
        // SAFETY: the messages of these tests are shorter than the rest of the vector.
        unsafe { send::store(self.at(word), address, message) }.map_err(|refused| refused.status)?;
        Ok(self.0[word + 1] as u32 as usize)
    }
}

/// A message of these words, freed at the end.
struct Made(*mut c_void);

impl Made {
    fn of(ifunc: &Ifunc, words: &[u64]) -> Made {
        // SAFETY: the functions of these tests copy their arguments.
        let made = unsafe { message::create(ifunc, words.as_ptr().cast_mut().cast(), words.len() * 8) };
        Made(made.unwrap().0)
    }

    fn message(&self) -> &Message {
        // SAFETY: it is freed when this is dropped.
        unsafe { Message::of(self.0) }.unwrap()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: it was made by `create`.
        unsafe { message::free(self.0) }.unwrap();
    }
}

/// Random numbers that are the same in each run (xorshift64).
struct Dice(u64);

impl Dice {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }
}

#[test]
fn code_travels_until_the_slot_has_its_receipt() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&sum, &[1, 2, 3]);
    let message = made.message();
    assert_eq!(slots.poll(8, &mut seen).0, UCS_ERR_NO_MESSAGE);
    assert_eq!(slots.store(8, message), Ok(message.len()));
    assert_eq!(slots.store(8, message), Err(UCS_ERR_NO_RESOURCE), "it was not taken yet");
    assert_eq!(slots.poll(8, &mut seen).0, UCS_OK);
    assert_eq!(slots.poll(8, &mut seen).0, UCS_ERR_NO_MESSAGE, "it was taken");
    assert_eq!((slots.store(8, message), message.short()), (Ok(48), 48));
    assert_eq!(slots.poll(8, &mut seen).0, UCS_OK);
    // Another slot has no state of this function.
    assert_eq!(slots.store(2048, message), Ok(message.len()));
    assert_eq!(slots.poll(2048, &mut seen).0, UCS_OK);
    assert_eq!(seen, [3, 18]);
}

#[test]
fn unknown_code_is_refused_and_the_next_frame_carries_it() {
    let Some(sum) = ifunc("sum", &SUM.replace("seen[0]++", "seen[0] += 2")) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&sum, &[5]);
    // A forged receipt, like one of an earlier process.
    slots.0[0] = frame::receipt(slots.address(0));
    slots.0[2] = made.message().key().word(3, false);
    assert_eq!(slots.store(0, made.message()), Ok(32));
    let (status, words) = slots.poll(0, &mut seen);
    assert_eq!((status, seen), (UCS_ERR_NO_ELEM, [0, 0]), "{words}");
    assert_eq!(slots.store(0, made.message()), Ok(made.message().len()));
    assert_eq!((slots.poll(0, &mut seen).0, seen), (UCS_OK, [2, 5]));
}

#[test]
fn frames_carry_all_images_until_the_slot_shows_the_targets_machine() {
    let (Some(one), Some(two)) = (fat("one", 1), fat("two", 2)) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let (first, second) = (Made::of(&one, &[7]), Made::of(&two, &[7]));
    assert_eq!(slots.store(0, first.message()), Ok(first.message().len()));
    assert_eq!((slots.poll(0, &mut seen).0, seen[0]), (UCS_OK, 1));
    // The receipt of the first function shows the machine of the slot's owner.
    let len = slots.store(0, second.message()).unwrap();
    assert!(second.message().short() < len && len < second.message().len(), "{len}");
    assert_eq!((slots.poll(0, &mut seen).0, seen[0]), (UCS_OK, 3));
    assert_eq!(slots.store(0, second.message()), Ok(second.message().short()));
    assert_eq!((slots.poll(0, &mut seen).0, seen[0]), (UCS_OK, 5));
    // In a slot of unknown state, a frame carries all images again.
    let checked = send::checked(slots.address(2048), second.message()).unwrap();
    assert_eq!(checked.len() * 8, second.message().len() + frame::CHECK);
    slots.0[2048..2048 + checked.len()].copy_from_slice(&checked);
    assert_eq!((slots.poll(2048, &mut seen).0, seen[0]), (UCS_OK, 7));
}

#[test]
fn code_for_another_machine_is_refused_and_the_next_frame_carries_all() {
    let Some(three) = fat("three", 3) else { return };
    let other = if Machine::native() == Some(Machine::X86_64) { Machine::AARCH64 } else { Machine::X86_64 };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&three, &[7]);
    // As if a target of another machine had been here.
    slots.0[0] = frame::receipt_of(other, slots.address(0)).unwrap();
    let len = slots.store(0, made.message()).unwrap();
    assert!(len < made.message().len(), "{len}");
    let (status, words) = slots.poll(0, &mut seen);
    assert_eq!((status, seen[0]), (UCS_ERR_CANCELED, 0));
    let (own, other) = (Machine::native().unwrap().triple(), other.triple());
    assert!(
        words.contains(&format!("code for {other}")) && words.contains(&format!("runs on {own}")),
        "{words}"
    );
    assert_eq!(slots.store(0, made.message()), Ok(made.message().len()));
    assert_eq!((slots.poll(0, &mut seen).0, seen[0]), (UCS_OK, 3));
}

#[test]
fn a_received_function_is_sent_on_with_all_machines_images() {
    let Some(four) = fat("four", 4) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&four, &[7]);
    slots.store(0, made.message()).unwrap();
    assert_eq!(slots.poll(0, &mut seen).0, UCS_OK);
    // There is no such library: the name stands for the code that came.
    let came = ifunc::register(0x1000, "four").unwrap();
    let again = Made::of(came, &[7]);
    assert_eq!(again.message().len(), made.message().len());
    assert_eq!(again.message().key(), made.message().key());
    slots.store(1024, again.message()).unwrap();
    assert_eq!((slots.poll(1024, &mut seen).0, seen[0]), (UCS_OK, 8));
    ifunc::deregister(0x1000, came).unwrap();
}

#[test]
fn a_frame_copied_to_another_address_is_no_message() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&sum, &[7]);
    let words = slots.store(512, made.message()).unwrap() / 8;
    for to in [0, 8, 64, 1024] {
        slots.0.copy_within(512..512 + words, to);
        assert_eq!(slots.poll(to, &mut seen).0, UCS_ERR_NO_MESSAGE, "{to}");
    }
    assert_eq!((slots.poll(512, &mut seen).0, seen), (UCS_OK, [1, 7]));
}

#[test]
fn a_checked_frame_arriving_in_any_order_runs_once_when_whole() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut dice) = (Slots::new(), Dice(7));
    let mut expected = [0_u64; 2];
    let mut seen = [0_u64; 2];
    for round in 0..300 {
        let payload: Vec<u64> = (0..dice.below(200)).map(|_| dice.word() >> 8).collect();
        let made = Made::of(&sum, &payload);
        let frame = send::checked(slots.address(0), made.message()).unwrap();
        let mut order: Vec<usize> = (0..frame.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, dice.below(last + 1));
        }
        // The old words at these places differ from the new ones, or the frame is whole without them.
        let mut missing = order.iter().filter(|&&word| slots.0[word] != frame[word]).count();
        for word in order {
            assert_eq!(
                slots.poll(0, &mut seen).0,
                UCS_ERR_NO_MESSAGE,
                "round {round}, {missing} words missing"
            );
            missing -= usize::from(slots.0[word] != frame[word]);
            slots.0[word] = frame[word];
            if missing == 0 {
                break;
            }
        }
        assert_eq!(slots.poll(0, &mut seen).0, UCS_OK, "round {round}");
        expected = [expected[0] + 1, expected[1].wrapping_add(payload.iter().sum())];
        assert_eq!(seen, expected, "round {round}");
        assert_eq!(slots.poll(0, &mut seen).0, UCS_ERR_NO_MESSAGE, "round {round}");
    }
}

#[test]
fn an_incomplete_frame_times_out_and_leaves_the_slot_empty() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&sum, &[1; 50]);
    let frame = send::checked(slots.address(0), made.message()).unwrap();
    slots.0[..frame.len() - 1].copy_from_slice(&frame[..frame.len() - 1]);
    // A frame with a false length.
    let mut lie = send::checked(slots.address(2048), made.message()).unwrap();
    lie[9] ^= 1;
    slots.0[2048..2048 + lie.len()].copy_from_slice(&lie);
    for word in [0, 2048] {
        let (status, words) = loop {
            match slots.poll(word, &mut seen) {
                (UCS_ERR_NO_MESSAGE, _) => std::thread::yield_now(),
                other => break other,
            }
        };
        assert_eq!(status, UCS_ERR_TIMED_OUT, "{words}");
        assert_eq!(slots.poll(word, &mut seen).0, UCS_ERR_NO_MESSAGE);
        assert_eq!(slots.0[word], frame::NOTHING);
    }
    assert_eq!(seen, [0, 0]);
}

/// Returns a slot with a long frame, and the frame.
fn long(ifunc: &Ifunc, words: usize) -> (Vec<u64>, Vec<u64>) {
    let made = Made::of(ifunc, &vec![1; words]);
    let mut slot = vec![0_u64; words + 4096];
    let frame = send::checked(slot.as_mut_ptr().addr() as u64, made.message()).unwrap();
    slot[..frame.len()].copy_from_slice(&frame);
    (slot, frame)
}

/// Polls the slot, and counts the bytes that were hashed for it.
fn poll_long(slot: &mut [u64], seen: &mut [u64; 2]) -> (Result<ucs_status_t, ucs_status_t>, usize) {
    let before = poll::HASHED.get();
    let space = size_of_val(slot);
    // SAFETY: the slot is as long as it is said to be, and this thread's alone; the function adds two words
    // up.
    let polled = unsafe { poll::poll(slot.as_mut_ptr().cast(), space, (&raw mut *seen).cast(), offer) };
    (polled.map_err(|refused| refused.status), poll::HASHED.get() - before)
}

/// Most bytes that a poll hashes.
const MOST_HASHED: usize = 64 << 10;

#[test]
fn a_long_checked_frame_runs_after_polls_of_bounded_hashing() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slot, frame) = long(&sum, 1 << 18);
    let mut seen = [0; 2];
    let mut polls = 0;
    loop {
        let (polled, hashed) = poll_long(&mut slot, &mut seen);
        assert!(hashed <= MOST_HASHED, "poll {polls} hashed {hashed} bytes");
        polls += 1;
        match polled {
            Ok(UCS_OK) => break,
            other => assert_eq!(other, Ok(UCS_ERR_NO_MESSAGE)),
        }
    }
    assert_eq!(seen, [1, 1 << 18]);
    assert_eq!(polls, (frame.len() * 8).div_ceil(MOST_HASHED));
}

#[test]
fn a_long_frame_with_wrong_check_times_out_with_bounded_hashing() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slot, frame) = long(&sum, 1 << 20);
    slot[1000] ^= 1;
    let (mut seen, mut polls, mut total) = ([0; 2], 0, 0);
    let status = loop {
        let (polled, hashed) = poll_long(&mut slot, &mut seen);
        assert!(hashed <= MOST_HASHED, "poll {polls} hashed {hashed} bytes");
        (polls, total) = (polls + 1, total + hashed);
        match polled {
            Ok(UCS_ERR_NO_MESSAGE) => {}
            other => break other,
        }
    };
    assert_eq!((status, seen), (Err(UCS_ERR_TIMED_OUT), [0, 0]));
    // Each hash but the first was saved up for, 4 KiB a poll.
    assert!(total <= 2 * frame.len() * 8 + polls * (4 << 10), "{total} bytes in {polls} polls");
}

#[test]
fn a_frame_longer_than_its_buffer_is_refused_and_gone() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    let made = Made::of(&sum, &[1, 2]);
    let len = slots.store(0, made.message()).unwrap();
    let (status, words) = slots.poll_of(0, len - 8, &mut seen);
    assert_eq!(status, UCS_ERR_CANCELED);
    assert!(words.contains(&format!("{len} bytes")), "{words}");
    assert_eq!(slots.poll(0, &mut seen).0, UCS_ERR_NO_MESSAGE);
    slots.store(0, made.message()).unwrap();
    assert_eq!((slots.poll_of(0, len, &mut seen).0, seen), (UCS_OK, [1, 3]));
}

#[test]
fn a_damaged_frame_gives_a_status_and_leaves_no_signal_behind() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let (mut slots, mut dice) = (Slots::new(), Dice(99));
    let mut seen = [0_u64; 2];
    let made = Made::of(&sum, &[3; 20]);
    let mut statuses = std::collections::BTreeMap::new();
    for _ in 0..20_000 {
        if dice.below(2) == 0 {
            slots.0[0] = frame::NOTHING;
        }
        let words = slots.store(0, made.message()).unwrap() / 8;
        let at = 1 + dice.below(words - 1);
        match dice.below(3) {
            0 => slots.0[at] = dice.word(),
            1 => slots.0[at] ^= 1 << dice.below(64),
            _ => slots.0[at] = dice.word() >> dice.below(64),
        }
        let (status, _) = slots.poll_of(0, words * 8, &mut seen);
        *statuses.entry(status).or_insert(0) += 1;
        assert_ne!(slots.0[0], frame::signal(slots.address(0)), "{status}");
    }
    for status in [UCS_OK, UCS_ERR_CANCELED, UCS_ERR_NO_ELEM] {
        assert!(statuses.contains_key(&status), "{statuses:?}");
    }
}

#[test]
fn a_null_misaligned_or_short_slot_is_refused() {
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    assert_eq!(slots.poll_of(0, 23, &mut seen).0, UCS_ERR_INVALID_PARAM);
    assert_eq!(slots.poll_of(0, 24, &mut seen).0, UCS_ERR_NO_MESSAGE);
    for (start, space) in [(std::ptr::null_mut(), 64), (slots.at(0).wrapping_add(4), 64)] {
        // SAFETY: it is null, or lies in the slots.
        let refused = unsafe { poll::poll(start.cast(), space, std::ptr::null_mut(), offer) }.unwrap_err();
        assert_eq!(refused.status, UCS_ERR_INVALID_PARAM);
    }
}

#[test]
fn panics_missing_symbols_and_misaligned_payloads_each_give_a_status() {
    let Some(panics) = ifunc("panics", PANICS) else { return };
    let (Some(aligned), Some(lacking)) = (ifunc("aligned", ALIGNED), ifunc("lacking", LACKING)) else {
        return;
    };
    let (mut slots, mut seen) = (Slots::new(), [0_u64; 2]);
    for (ifunc, status, text) in [
        (&panics, UCS_ERR_CANCELED, "`panics` panicked: no more"),
        (&lacking, UCS_ERR_CANCELED, "nobody_has_this"),
    ] {
        slots.store(0, Made::of(ifunc, &[1]).message()).unwrap();
        let (found, words) = slots.poll(0, &mut seen);
        assert_eq!(found, status, "{words}");
        assert!(words.contains(text), "{words}");
        assert_eq!(slots.poll(0, &mut seen).0, UCS_ERR_NO_MESSAGE);
    }
    let at = slots.0.as_ptr().align_offset(256);
    let made = Made::of(&aligned, &[1]);
    slots.store(at, made.message()).unwrap();
    assert_eq!((slots.poll(at, &mut seen).0, seen[0]), (UCS_OK, 1));
    // A sender that ignores the function's alignment.
    slots.store(at + 1, made.message()).unwrap();
    assert_eq!(slots.poll(at + 1, &mut seen).0, UCS_ERR_INVALID_ADDR);
    assert_eq!(made.message().slot_align(), 256);
}

#[test]
fn a_message_that_was_freed_is_noticed_and_freed_once() {
    let Some(sum) = ifunc("sum", SUM) else { return };
    let made = Made::of(&sum, &[1]);
    let frame = made.0;
    drop(made);
    // SAFETY: it was made by `create`.
    let (again, of) = unsafe { (message::free(frame), Message::of(frame).map(Message::len)) };
    assert_eq!(again.unwrap_err().status, UCS_ERR_INVALID_PARAM);
    assert_eq!(of.unwrap_err().status, UCS_ERR_INVALID_PARAM);
    // SAFETY: null is no frame.
    assert_eq!(unsafe { message::free(std::ptr::null_mut()) }.unwrap_err().status, UCS_ERR_INVALID_PARAM);
}

#[test]
fn each_frame_arrives_whole_in_a_slot_polled_by_another_thread() {
    const FRAMES: u64 = 20_000;
    let Some(sum) = ifunc("sum", SUM) else { return };
    let mut slots = Slots::new();
    let (start, address) = (slots.at(0).addr(), slots.address(0));
    let ran = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FRAMES {
                let made = Made::of(&sum, &vec![number; 1 + number as usize % 500]);
                let slot = start as *mut u8;
                // SAFETY: the slot is longer than the frame, and both processes access shared words by
                // atomics.
                while unsafe { send::store(slot, address, made.message()) }.is_err() {
                    std::thread::yield_now();
                }
                while ran.load(Ordering::Acquire) <= number {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = [0_u64; 2];
        for number in 0..FRAMES {
            seen[1] = 0;
            // SAFETY: the slot has the given length, and both processes access shared words by atomics.
            while unsafe { poll::poll(start as *mut c_void, 8 * 4096, (&raw mut seen).cast(), offer) }
                .unwrap()
                != UCS_OK
            {
                std::thread::yield_now();
            }
            assert_eq!(seen, [number + 1, number * (1 + number % 500)]);
            ran.store(number + 1, Ordering::Release);
        }
    });
}

#[test]
fn keys_of_names_are_none_of_codes() {
    let id = farjump_loader::code_id(b"sum");
    assert_ne!(Key::of_name("sum"), Key::of_code(&id));
    assert!(Key::of_name("sum").is_name() && !Key::of_code(&id).is_name());
}
