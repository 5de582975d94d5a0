//! Frames in the caller's own buffers.

use farjump::buffer::{AlignedBuffer, FrameRunner, FrameWriter, RunOutcome};
use farjump::core::frame::{Plan, Trailer};
use farjump::core::signal::LinkKey;
use farjump::{Data, Error, Executor, InjectError, Library, Platform, RefusalCause, TargetConfig};
use farjump_fixtures::raw_mailbox::frame_at;
use farjump_fixtures::raw_source::call_id;
use proptest::prelude::*;

use crate::support::{FOREIGN, library, to_words, words};

/// The link key of every frame here.
const KEY: LinkKey = LinkKey::from_bytes(*b"0123456789abcdef");

/// Writer and runner, and the buffers between them: bytes written in one are moved to the other.
struct Fixture {
    executor: Executor,
    writer: FrameWriter,
    runner: FrameRunner,
    written: AlignedBuffer,
    moved: AlignedBuffer,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(Executor::builder().build().unwrap())
    }

    /// Makes a fixture with little capacity for code, so that a test can have many of them.
    fn new_small() -> Fixture {
        Fixture::with(
            Executor::builder()
                .configured(&TargetConfig { arena_size: 1 << 16, ..TargetConfig::default() })
                .build()
                .unwrap(),
        )
    }

    fn with(executor: Executor) -> Fixture {
        Fixture {
            writer: FrameWriter::new(KEY, executor.epoch()),
            runner: FrameRunner::new(KEY),
            executor,
            written: AlignedBuffer::new(1 << 16),
            moved: AlignedBuffer::new(1 << 16),
        }
    }

    /// Writes a frame and moves its bytes.
    fn carry(&mut self, library: &Library, args: &[u8]) -> usize {
        let len = self.writer.write(&mut self.written, library, args).unwrap();
        self.moved[..len].copy_from_slice(&self.written[..len]);
        len
    }

    fn run(&mut self) -> RunOutcome<'_> {
        // SAFETY: the frame is from this test's writer, spoilt only in fields that are checked.
        unsafe { self.runner.run(&mut self.executor, &mut self.moved) }.unwrap()
    }

    fn call(&mut self, library: &Library, args: &[u8]) -> Vec<u8> {
        let len = self.carry(library, args);
        match self.run() {
            RunOutcome::Done { frame_len, reply } => {
                assert_eq!(frame_len, len);
                reply.to_vec()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn samples_run_from_a_buffer_with_right_results() {
    let text = "panic and panic again: unpanicked";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, text).unwrap();
    let mut data = Data::open(&file).unwrap();
    let executor = || {
        Executor::builder()
            .configured(&TargetConfig { process_symbols: true, ..TargetConfig::default() })
            .build()
            .unwrap()
    };

    let mut fixture = Fixture::with(executor());
    // SAFETY: the three samples take a `struct farjump_data *`, which `data` is, until the end of this test.
    unsafe { fixture.executor.set_target_args((&raw mut data).cast()) };
    for _ in 0..3 {
        let histogram = to_words(&fixture.call(&library("histogram"), b""));
        assert_eq!(histogram[0], text.len() as u64);
        for byte in 0..=255_u8 {
            let expected = text.bytes().filter(|other| *other == byte).count() as u64;
            assert_eq!(histogram[1 + usize::from(byte)], expected);
        }
        let found = fixture.call(&library("grep"), b"panic");
        assert_eq!(found[..8], 3_u64.to_ne_bytes());
        let sum = fixture.call(&library("crc32"), b"");
        // CRC-32 of zlib: polynomial 0xedb88320, bits from the lowest.
        let expected = !text.bytes().fold(!0_u32, |sum, byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
        });
        assert_eq!(sum[..4], expected.to_ne_bytes());
    }

    let mut fixture = Fixture::with(executor());
    for round in 1..=3_u64 {
        assert_eq!(fixture.call(&library("hello"), b"floor"), round.to_ne_bytes());
    }
    let mut count = 0_u64;
    // SAFETY: `counter` takes a `uint64_t *`, which `count` is, until the end of this test.
    unsafe { fixture.executor.set_target_args((&raw mut count).cast()) };
    for _ in 0..3 {
        assert!(fixture.call(&library("counter"), b"any").is_empty());
    }
    assert_eq!(count, 3);
}

#[test]
fn code_travels_in_the_first_frame_of_each_function_only() {
    let mut fixture = Fixture::new();
    let (echo, tally) = (library("echo"), library("tally"));
    let lengths = [&echo, &echo, &tally, &echo, &tally].map(|library| {
        let len = fixture.carry(library, b"x");
        assert!(matches!(fixture.run(), RunOutcome::Done { .. }));
        len
    });
    assert!(lengths[0] > 64 && lengths[2] > 64);
    assert_eq!([lengths[1], lengths[3], lengths[4]], [64; 3]);
}

#[test]
fn a_frame_that_is_not_due_reads_as_empty() {
    let mut fixture = Fixture::new();
    let tally = library("tally");
    assert_eq!(fixture.run(), RunOutcome::Empty, "a buffer of zeros");
    fixture.carry(&tally, b"");
    let first = fixture.moved[..].to_vec();
    fixture.carry(&tally, b"");
    assert_eq!(fixture.run(), RunOutcome::Empty, "the second before the first");
    let second = fixture.moved[..].to_vec();
    fixture.moved.copy_from_slice(&first);
    assert!(matches!(fixture.run(), RunOutcome::Done { reply, .. } if to_words(reply) == [1]));
    assert_eq!(fixture.run(), RunOutcome::Empty, "the first again");
    fixture.moved.copy_from_slice(&second);
    assert!(matches!(fixture.run(), RunOutcome::Done { reply, .. } if to_words(reply) == [2]));
    assert_eq!(fixture.run(), RunOutcome::Empty);
}

#[test]
fn misaligned_and_short_buffers_are_errors_and_harm_no_later_frame() {
    let mut fixture = Fixture::new();
    let echo = library("echo");
    for off in [1, 8, 32, 63] {
        let errors = [
            fixture.writer.write(&mut fixture.written[off..], &echo, b"").unwrap_err(),
            // SAFETY: the frame is from this test's writer, as in `Fixture::run`.
            unsafe { fixture.runner.run(&mut fixture.executor, &mut fixture.moved[off..]).map(drop) }
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Misaligned { align: 64 }), "{error}");
            assert_eq!(
                error.to_string(),
                "the buffer is not aligned to 64 bytes: use an AlignedBuffer, or align it"
            );
        }
    }
    let needed = fixture.carry(&echo, b"x");
    fixture.writer.resend_code(1);
    for len in [0, 1, 63, 64, needed - 1] {
        let error = fixture.writer.write(&mut fixture.written[..len], &echo, b"x").unwrap_err();
        assert!(
            matches!(error, Error::Inject(InjectError::TooLarge { max, .. }) if max == len),
            "{len}: {error}"
        );
        assert_eq!(
            // SAFETY: the frame is from this test's writer, as in `Fixture::run`.
            unsafe { fixture.runner.run(&mut fixture.executor, &mut fixture.written[..len.min(63)]) }
                .unwrap(),
            RunOutcome::Empty
        );
    }
    // None of these counts.
    assert_eq!(fixture.call(&echo, b"fits"), b"fits");
}

#[test]
fn payload_routines_over_their_space_in_a_buffer_are_errors() {
    let mut fixture = Fixture::new();
    let demanding = library("demanding");
    for (max, written, result) in [(4, 4, 1), (4, 5, 0), (5000, 5001, 0), (u64::MAX, 1, 0), (1 << 31, 1, 0)] {
        let wish = words(&[max, written, max, result]);
        let error = fixture.writer.write(&mut fixture.written, &demanding, &wish).unwrap_err();
        let fits = match (max, result) {
            (_, 1) => matches!(error, Error::Library(_)),
            (..=5000, _) => matches!(error, Error::Inject(InjectError::PayloadOverrun { .. })),
            _ => matches!(error, Error::Inject(InjectError::TooLarge { .. })),
        };
        assert!(fits, "{error}");
        assert_eq!(to_words(&fixture.call(&demanding, &words(&[40, 40, 40, 0]))), [40]);
    }
    let error =
        fixture.writer.write(&mut fixture.written, &demanding, &words(&[1 << 31, 1, 0, 0])).unwrap_err();
    assert!(matches!(error, Error::Inject(InjectError::TooLarge { .. })), "{error}");
}

#[test]
fn a_payload_at_insufficient_alignment_is_rejected_by_writer_and_runner() {
    let mut fixture = Fixture::new();
    let aligned = library("aligned");
    let address = to_words(&fixture.call(&aligned, b"x"))[0];
    assert_eq!(address % 4096, 0);
    let error = fixture.writer.write(&mut fixture.written[64..], &aligned, b"x").unwrap_err();
    assert!(matches!(error, Error::Misaligned { align: 4096 }), "{error}");
    // Moved to an address that is aligned to a line and no more.
    let len = fixture.carry(&aligned, b"x");
    fixture.moved.copy_within(..len, 64);
    // SAFETY: the frame is from this test's writer, as in `Fixture::run`.
    let ran = unsafe { fixture.runner.run(&mut fixture.executor, &mut fixture.moved[64..64 + len]) }.unwrap();
    assert!(
        matches!(ran, RunOutcome::Refused(ref refusal) if refusal.cause == RefusalCause::BadFrame),
        "{ran:?}"
    );
    fixture.call(&aligned, b"x");
}

#[test]
fn panics_refusals_and_long_replies_are_distinct_and_the_next_frame_runs() {
    let mut fixture = Fixture::with(Executor::builder().reply_limit(100).build().unwrap());
    let (speech, lookup) = (library("speech"), library("lookup"));
    let len = fixture.carry(&speech, &[&words(&[1, 1])[..], b"oh no"].concat());
    assert_eq!(fixture.run(), RunOutcome::Panicked { frame_len: len, message: b"oh no" });
    fixture.carry(&speech, &words(&[200, 10]));
    match fixture.run() {
        RunOutcome::Refused(refusal) => {
            assert_eq!(refusal.cause, RefusalCause::ReplyTooLarge);
            assert!(refusal.text.contains("limit"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    for _ in 0..2 {
        fixture.carry(&lookup, &words(&[1]));
        match fixture.run() {
            RunOutcome::Refused(refusal) => {
                assert!(refusal.text.contains("exports none of `store_"), "{refusal}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fixture.call(&speech, &words(&[2, 1])), [0; 3]);
}

#[test]
fn frames_behind_one_that_lacks_its_code_are_written_again_with_it() {
    let mut fixture = Fixture::new();
    let tally = library("tally");
    let image = &tally.images()[0];
    // A writer that knows only the code's id, as after an earlier link.
    let plan = Plan { token: 0, ..call_id("tally", image.id(), fixture.executor.epoch()) };
    let mut frame = frame_at(0, &plan, b"", Trailer::Never).unwrap();
    frame[..8].copy_from_slice(&KEY.header(0).to_le_bytes());
    fixture.moved[..frame.len()].copy_from_slice(&frame);
    for _ in 0..2 {
        assert_eq!(fixture.run(), RunOutcome::NeedsCode(image.id()), "as often as it is looked at");
    }
    // This writer has written three frames, none of which ran.
    for _ in 0..3 {
        fixture.writer.write(&mut fixture.written, &tally, b"").unwrap();
    }
    fixture.writer.resend_code(3);
    for round in 1..=3 {
        assert_eq!(to_words(&fixture.call(&tally, b"")), [round]);
    }
    // Now the runner has the code, and the id is enough.
    fixture.moved[..frame.len()].copy_from_slice(&frame);
    fixture.moved[..8].copy_from_slice(&KEY.header(3).to_le_bytes());
    assert!(matches!(fixture.run(), RunOutcome::Done { reply, .. } if to_words(reply) == [4]));
}

#[test]
fn frames_for_another_epoch_or_machine_are_refused() {
    let mut fixture = Fixture::new();
    let echo = library("echo");
    let mut stale = FrameWriter::new(KEY, fixture.executor.epoch() ^ 1);
    stale.write(&mut fixture.moved, &echo, b"").unwrap();
    assert!(
        matches!(fixture.run(), RunOutcome::Refused(refusal) if refusal.cause == RefusalCause::StaleEpoch)
    );
    let mut foreign =
        FrameWriter::new(KEY, fixture.executor.epoch()).for_platform(Platform::baseline(FOREIGN));
    let error = foreign.write(&mut fixture.written, &echo, b"").unwrap_err();
    assert!(error.to_string().contains(FOREIGN.triple()), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_garbage_behind_a_right_signal_runs_or_harms(
        bytes in proptest::collection::vec(any::<u8>(), 0..512),
        lengths in any::<[u16; 4]>(),
        tame in any::<bool>(),
    ) {
        let mut fixture = Fixture::new_small();
            fixture.moved[8..8 + bytes.len()].copy_from_slice(&bytes);
        if tame {
            // Lengths and offsets that are nearly right pass more of the checks.
            fixture.moved[8..12].copy_from_slice(&(u32::from(lengths[0] % 16) * 64).to_le_bytes());
            fixture.moved[12..16].copy_from_slice(&u32::from(lengths[1] % 600).to_le_bytes());
            fixture.moved[16] = (lengths[2] % 8) as u8;
            fixture.moved[17] = 0x10 | (lengths[3] % 16) as u8;
        }
        fixture.moved[..8].copy_from_slice(&KEY.header(0).to_le_bytes());
        match fixture.run() {
            RunOutcome::Refused(refusal) => prop_assert!(!refusal.text.is_empty()),
            RunOutcome::NeedsCode(_) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_frame_with_one_changed_byte_runs_waits_or_is_refused(
        at in any::<proptest::sample::Index>(),
        change in 1..=255_u8,
        with_code in any::<bool>(),
    ) {
        let mut fixture = Fixture::new_small();
        let echo = library("echo");
        if !with_code {
            fixture.call(&echo, b"first");
        }
        let len = fixture.carry(&echo, b"a message of some length, longer than what fits a line");
        let at = at.index(len);
        fixture.moved[at] ^= change;
        // The payload is data: if it is changed, the function replies it as it is, cut, or at another alignment. The
        // runner checks everything else.
        match fixture.run() {
            RunOutcome::Empty => prop_assert!(at < 8),
            RunOutcome::Refused(refusal) => prop_assert!(!refusal.text.is_empty()),
            RunOutcome::NeedsCode(_) => prop_assert!((16..32).contains(&at)),
            RunOutcome::Done { .. } => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
