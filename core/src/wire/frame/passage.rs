//! The passage of a forwarded call, and the payload of a reply for calls of which some were lost.

/// Length of a passage, in bytes.
pub const PASSAGE_LEN: usize = 8;

/// The data that targets send each other about a forwarded call: the last bytes of its payload.
///
/// | offset | bytes | what |
/// |---|---|---|
/// | 0 | 4 | hops so far, with this one |
/// | 4 | 4 | zero; not read |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passage {
    /// The number of targets that have forwarded the call.
    pub hops: u32,
}

impl Passage {
    /// As bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; PASSAGE_LEN] {
        u64::from(self.hops).to_le_bytes()
    }

    /// From bytes, all of which are possible.
    #[inline]
    pub fn from_bytes(bytes: [u8; PASSAGE_LEN]) -> Passage {
        Passage { hops: u64::from_le_bytes(bytes) as u32 }
    }
}

/// The payload of a reply with the status [`ReplyStatus::Incomplete`](super::ReplyStatus::Incomplete).
///
/// | offset | bytes | what |
/// |---|---|---|
/// | 0 | 8 | number of calls that were lost, with all that they would have led to |
/// | 8 | 4 | length of the text |
/// | 12 | | the cause of the first loss, UTF-8; then the replies of the others |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IncompleteReply<'a> {
    /// Number of calls that were lost.
    pub lost: u64,
    /// The cause of the first loss.
    pub text: &'a [u8],
    /// The replies of the others, one behind the other.
    pub replies: &'a [u8],
}

impl<'a> IncompleteReply<'a> {
    /// Bytes before the text.
    pub const HEAD_LEN: usize = 12;

    /// The bytes before the replies. The text is cut so that the whole payload has at most `most` bytes.
    /// `None` if the replies are too long for that.
    pub fn head(&self, most: usize) -> Option<alloc::vec::Vec<u8>> {
        let room = most.checked_sub(Self::HEAD_LEN + self.replies.len())?;
        let text = &self.text[..self.text.len().min(room)];
        let mut head = alloc::vec::Vec::with_capacity(Self::HEAD_LEN + text.len());
        head.extend_from_slice(&self.lost.to_le_bytes());
        head.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        head.extend_from_slice(text);
        Some(head)
    }

    /// Takes the parts of a payload; `None` if it has no such parts.
    pub fn of(payload: &'a [u8]) -> Option<IncompleteReply<'a>> {
        let (lost, rest) = payload.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (text, replies) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(IncompleteReply { lost: u64::from_le_bytes(*lost), text, replies })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_passage_is_its_hops() {
        for hops in [0, 1, u32::MAX] {
            assert_eq!(Passage::from_bytes(Passage { hops }.to_bytes()), Passage { hops });
        }
        assert_eq!(Passage { hops: 0x0403_0201 }.to_bytes(), [1, 2, 3, 4, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn an_incomplete_reply_keeps_its_parts(
            lost: u64,
            text in proptest::collection::vec(any::<u8>(), 0..40),
            replies in proptest::collection::vec(any::<u8>(), 0..40),
            most in 0..100_usize,
        ) {
            let reply = IncompleteReply { lost, text: &text, replies: &replies };
            let Some(mut bytes) = reply.head(most) else {
                prop_assert!(most < IncompleteReply::HEAD_LEN + replies.len());
                return Ok(());
            };
            bytes.extend_from_slice(&replies);
            prop_assert!(bytes.len() <= most);
            let read = IncompleteReply::of(&bytes).unwrap();
            prop_assert_eq!((read.lost, read.replies), (lost, &replies[..]));
            prop_assert!(text.starts_with(read.text));
            for len in 0..IncompleteReply::HEAD_LEN + read.text.len() {
                prop_assert_eq!(IncompleteReply::of(&bytes[..len]), None);
            }
        }
    }
}
