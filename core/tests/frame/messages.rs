//! Several messages in one payload: honest ones read back, and no word yields messages outside the payload.

use farjump_core::frame::{
    Flags, FrameError, Header, INLINE_ALIGN_LOG2, Kind, MAX_BATCH, MESSAGES_HEAD_LEN, Messages,
};
use proptest::prelude::*;

fn header(payload_len: u32) -> Header {
    let flags = Flags::from_bits_retain(INLINE_ALIGN_LOG2);
    Header { frame_len: 1 << 20, payload_len, kind: Kind::CallBatch, flags, index: 0, token: 0 }
}

fn of(payload_len: u32, len: u32, count: u32) -> Result<Messages, FrameError> {
    Messages::of(&header(payload_len), || Messages { len, count }.to_word())
}

/// Bytes of payload that `count` messages take.
fn taken(len: u32, count: u32) -> u32 {
    MESSAGES_HEAD_LEN as u32 + count * Messages::stride(len as usize) as u32
}

#[test]
fn messages_start_at_multiples_of_8_and_never_at_the_same_place() {
    let strides = [0, 1, 7, 8, 9, 16, 17, 255, 256].map(Messages::stride);
    assert_eq!(strides, [8, 8, 8, 8, 16, 16, 24, 256, 256]);
}

#[test]
fn impossible_message_lengths_and_counts_are_refused_with_their_payload_length() {
    for (payload, len, count) in [
        (taken(8, 1), 8, 0),
        (taken(8, 1), 8, 2),
        (taken(8, 1), 9, 1),
        (taken(0, 1) - 8, 0, 1),
        (taken(8, MAX_BATCH + 1), 8, MAX_BATCH + 1),
        (u32::MAX, u32::MAX, 2),
        (u32::MAX, 8, u32::MAX),
        (7, 0, 1),
        (0, 0, 0),
    ] {
        match of(payload, len, count) {
            Err(FrameError::Messages { payload: reported, .. }) => assert_eq!(reported, payload),
            other => panic!("{len} {count} in {payload}: {other:?}"),
        }
    }
}

#[test]
fn a_payload_too_short_for_their_number_is_not_looked_at() {
    let read = Messages::of(&header(7), || panic!("there is no such word"));
    assert!(read.is_err());
}

#[test]
fn a_batch_frame_that_wants_a_reply_is_refused() {
    let flags = Flags::from_bits_retain(INLINE_ALIGN_LOG2).union(Flags::WANTS_REPLY);
    let word = Messages { len: 8, count: 1 }.to_word();
    let read = Messages::of(&Header { flags, ..header(taken(8, 1)) }, || word);
    assert_eq!(read, Err(FrameError::Flags(flags.bits())));
}

proptest! {
    #[test]
    fn messages_that_fit_are_read_as_they_were_written(len in 0_u32..5000, count in 1..=MAX_BATCH, more in 0_u32..100) {
        prop_assert_eq!(of(taken(len, count) + more, len, count), Ok(Messages { len, count }));
    }

    #[test]
    fn whatever_a_word_says_messages_that_are_taken_lie_in_the_payload(payload in 0_u32..20_000, len: u32, count: u32, small: bool) {
        let (len, count) = if small { (len % 4096, count % 160) } else { (len, count) };
        if let Ok(Messages { len, count }) = of(payload, len, count) {
            prop_assert!((1..=MAX_BATCH).contains(&count));
            let last = MESSAGES_HEAD_LEN as u64 + u64::from(count - 1) * Messages::stride(len as usize) as u64;
            prop_assert!(last + u64::from(len) <= u64::from(payload));
        }
    }
}
