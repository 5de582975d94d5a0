//! The fast check of a frame agrees with the general one.

use alloc::vec;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => (0_u32..80).prop_map(|lines| lines * 64),
        3 => 0_u32..5_000,
        1 => select(vec![24, 40, 41, u32::MAX, u32::MAX - 63, 1 << 31]),
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50_000))]

    #[test]
    fn the_quick_check_of_mailbox_frames_agrees_with_the_full_check(
        (frame_len, payload_len, limit) in (length(), length(), length()),
        left in length().prop_map(|left| left & !63).prop_filter("a frame starts on a line of the ring", |left| *left != 0),
        kind in 0_u8..10,
        flags in prop_oneof![6 => select(vec![0x03_u8, 0x16, 0x06, 0x1c, 0x53]), 2 => any::<u8>()],
        index: u16,
        token: u32,
        line in 0_usize..64,
    ) {
        let words = [
            u64::from(frame_len) | u64::from(payload_len) << 32,
            u64::from(kind) | u64::from(flags) << 8 | u64::from(index) << 16 | u64::from(token) << 32,
        ];
        let (base, left, limit) = (line * LINE, left as usize, limit as usize);
        let long = Header::from_words(words).ok().filter(|header| {
            !header.kind.names_code() && !matches!(header.kind, Kind::Skip | Kind::Large) && !header.flags.intersects(Flags::TRAILER | Flags::TRAVELLED)
        });
        let long = long.and_then(|header| {
            let parts = header.check(base, left, limit, || panic!("it names no code")).ok()?;
            Some((header, parts.payload))
        });
        prop_assert_eq!(Header::plain(words, base, left, limit), long);
    }

    #[test]
    fn words_that_were_accepted_read_back_as_they_were(lengths: u64, rest: u64) {
        for kind in 2..=6_u64 {
            let words = [lengths, rest & !0xff | kind];
            match Header::from_words(words) {
                Ok(header) => prop_assert_eq!(Header::of_checked(words), header),
                Err(error) => {
                    let flags = (rest >> 8) as u8;
                    let travels = matches!(Kind::from_number(kind as u8), Some(kind) if kind.travels());
                    prop_assert!(error == FrameError::Flags(flags) && flags & 0x80 != 0 && !travels);
                }
            }
            prop_assert_eq!(Header::of_checked(words).to_words(), words);
        }
    }
}
