//! What travels on the control connection.
//!
//! Behind the prefix of each direction ([`super::preamble`]) come messages: a head of 8 bytes (length of the body,
//! `u32`; number of file descriptors that travel beside it, `u8`; three zero bytes) and the body, a [`Message`] in
//! postcard's encoding. All numbers outside the body are little-endian. Where both sides have a key the whole travels in sealed
//! packets of the Noise protocol.
//!
//! New kinds are added at the end of an enum; the numbers of those that are there never change within a version.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::admin::messages::Question;
use crate::connection::stream_offer::{StreamAnswer, StreamOffer};
use crate::refusal::{MeetRefusal, RefusalCause};
use crate::rights::Rights;

/// Length of a message's head in bytes.
pub const HEAD_LEN: usize = 8;
/// Longest body of a message until both sides have met, in bytes.
pub const MAX_MEETING_MESSAGE: usize = 64 * 1024;
/// Longest image that travels on a control connection, in bytes.
pub const MAX_CODE: usize = 64 * 1024 * 1024;
/// Longest body of a message after the meeting, in bytes: an image and what goes with it.
pub const MAX_MESSAGE: usize = MAX_CODE + 4096;
/// Most file descriptors that travel with one message.
pub const MAX_DESCRIPTORS: usize = 8;
/// Most transports that a source may name.
pub const MAX_TRANSPORTS: usize = 16;
/// Longest name of a transport, in bytes.
pub const MAX_TRANSPORT_NAME: usize = 32;

/// One message of the control connection. The first five are the meeting, in this order, to which [`Message::Rights`] and [`Message::Limits`] are
/// added; the rest may come at any time after it. [`Message::Enlarge`] begins a small meeting of its own, which
/// [`Message::Go`] ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// Source to target: who asks.
    Hello {
        /// ELF machine number of the source.
        machine: u16,
        /// Process id, as the source sees itself. For people; the target relies on what the system says.
        pid: u32,
        /// Name of the program, for people.
        program: String,
        /// Transports that it could use, best first: at most [`MAX_TRANSPORTS`].
        #[serde(deserialize_with = "few")]
        transports: Vec<String>,
    },
    /// Target to source: who answers, and the target's end of the link. The end's descriptors travel beside it.
    Welcome {
        /// The target's epoch: another each time a target starts. Code indices are bound within one.
        epoch: u64,
        /// ELF machine number of the target. A source with no image for it need not go on.
        machine: u16,
        /// Process id, as the target sees itself.
        pid: u32,
        /// Name of the program, for people.
        program: String,
        /// Its end.
        end: End,
        /// The stream that it awaits, where the transport's frames travel on one.
        stream: Option<StreamOffer>,
    },
    /// Source to target: the source's end of the link. The end's descriptors travel beside it.
    Ready {
        /// Its end.
        end: End,
        /// The stream that it has opened, where one is awaited.
        stream: Option<StreamAnswer>,
    },
    /// Target to source: both ends are connected, frames may flow.
    Go,
    /// Either way, at any time before [`Message::Go`]: no link. The sender closes the connection after it.
    Refuse {
        /// Why.
        cause: MeetRefusal,
        /// Why, in a sentence for people.
        text: String,
    },
    /// Target to source: a frame was not run. The call with this token fails with this.
    Refused {
        /// Token of the frame; 0 where the frame was so damaged that it had none.
        token: u32,
        /// Why.
        cause: RefusalCause,
        /// Why, in a sentence for people.
        text: String,
    },
    /// Target to source: the frame at the head of the mailbox names code that the target does not hold. It waits until
    /// [`Message::Code`] or [`Message::NoCode`] comes.
    NeedCode {
        /// The code index that the frame binds.
        index: u16,
        /// The code id.
        id: [u8; 16],
    },
    /// Target to source: the target stops; frames not run by now will not be.
    Closing {
        /// Why, in a sentence for people.
        text: String,
    },
    /// Source to target: the code that was asked for.
    Code {
        /// The code id.
        id: [u8; 16],
        /// The image, at most [`MAX_CODE`] bytes.
        #[serde(with = "serde_bytes")]
        image: Vec<u8>,
    },
    /// Source to target: the source no longer has that code. The waiting frame is refused.
    NoCode {
        /// The code id.
        id: [u8; 16],
    },
    /// Source to target: the source is done with the link. Frames sent before it are still run.
    Bye,
    /// Target to source: an image was placed for the first time; how long that took, for people's figures.
    Linked {
        /// The code index that was bound to it.
        index: u16,
        /// From the copy in the target's own memory to code that can be called.
        nanoseconds: u64,
    },
    /// Target to source, once before [`Message::Go`], from a target that has such limits: what it refuses, so that a source
    /// need not send it.
    Limits(Limits),
    /// Source to target: a frame is to come that the link's mailbox is too small for. Answered with [`Message::Offer`] or
    /// [`Message::Decline`]. A bigger mailbox that the link has already is given back with it: nothing is left in it.
    Enlarge {
        /// Length of the frame in bytes, all included, at most.
        frame: u64,
        /// Length of its payload in bytes, at most.
        payload: u64,
    },
    /// Target to source: the target's end of the bigger mailbox. Its descriptors travel beside it.
    Offer {
        /// Its end, of the link's own transport.
        end: End,
    },
    /// Source to target: the source's end of the bigger mailbox. Its descriptors travel beside it. [`Message::Go`] answers
    /// it: from then on frames may lie there. Or [`Message::Decline`], where it comes too late.
    Accept {
        /// Its end.
        end: End,
    },
    /// Target to source: there will be no mailbox for that frame.
    Decline {
        /// Why.
        cause: RefusalCause,
        /// Why, in a sentence for people.
        text: String,
    },
    /// Source to target: the bigger mailbox, or the offer of one, is given back. Nothing is left in it.
    Shrink,
    /// In the place of [`Message::Hello`], from a process that makes no link: a question. It sends nothing after it.
    Ask(Question),
    /// Target to who asked: the answer. The target closes the connection after it.
    Answer {
        /// An [`Answer`](crate::admin::messages::Answer) in postcard's encoding. Bytes here, so that whoever did not ask for one never
        /// takes the memory that it decodes to.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Target to source, once before [`Message::Go`]: what the source may do, so that it need not try what it may not.
    Rights(Rights),
}

/// What a target takes of a source, where that is less than a frame holds. `None`, which is what travels too, is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Largest payload in bytes.
    pub payload: Option<u64>,
    /// Largest image in bytes.
    pub image: Option<u64>,
}

/// Takes one name more than a source may give, so that its refusal can say so, and no more: an empty one is a byte on the wire
/// and many in memory.
fn few<'de, D: Deserializer<'de>>(decoder: D) -> Result<Vec<String>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<String>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "at most {MAX_TRANSPORTS} names of transports")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut names = Vec::new();
            while let Some(name) = list.next_element()? {
                if names.len() > MAX_TRANSPORTS {
                    return Err(A::Error::custom(format_args!("more than {MAX_TRANSPORTS} transports")));
                }
                names.push(name);
            }
            Ok(names)
        }
    }
    decoder.deserialize_seq(Few)
}

impl Message {
    /// Its name, for error texts and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Hello { .. } => "Hello",
            Message::Welcome { .. } => "Welcome",
            Message::Ready { .. } => "Ready",
            Message::Go => "Go",
            Message::Refuse { .. } => "Refuse",
            Message::Refused { .. } => "Refused",
            Message::NeedCode { .. } => "NeedCode",
            Message::Closing { .. } => "Closing",
            Message::Code { .. } => "Code",
            Message::NoCode { .. } => "NoCode",
            Message::Bye => "Bye",
            Message::Linked { .. } => "Linked",
            Message::Limits(_) => "Limits",
            Message::Enlarge { .. } => "Enlarge",
            Message::Offer { .. } => "Offer",
            Message::Accept { .. } => "Accept",
            Message::Decline { .. } => "Decline",
            Message::Shrink => "Shrink",
            Message::Ask(_) => "Ask",
            Message::Answer { .. } => "Answer",
            Message::Rights(_) => "Rights",
        }
    }

    /// Whether a secret is in it.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, Message::Welcome { stream: Some(_), .. } | Message::Ready { stream: Some(_), .. })
    }

    /// Whether file descriptors may travel with messages of the kind with this number: the first byte of a body.
    pub(crate) fn kind_has_descriptors(number: u8) -> bool {
        // Welcome, Ready, Offer, Accept.
        matches!(number, 1 | 2 | 14 | 15)
    }

    /// How many file descriptors may travel with it.
    pub(crate) fn max_descriptors(&self) -> usize {
        match self {
            Message::Welcome { .. }
            | Message::Ready { .. }
            | Message::Offer { .. }
            | Message::Accept { .. } => MAX_DESCRIPTORS,
            _ => 0,
        }
    }
}

/// One side's end of a link, as it tells the other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// Name of the transport.
    pub transport: String,
    /// The transport's address, opaque to all but the transport; its descriptors travel beside the message.
    #[serde(with = "serde_bytes")]
    pub address: Vec<u8>,
    /// Key of the frames that this side receives ([`farjump_core::signal::LinkKey`]).
    pub key: [u8; 16],
    /// The arrival rules that this side can honour, as bits of [`farjump_core::transport::ArrivalRules`]. Unknown bits
    /// are ignored.
    pub rules: u8,
    /// Whether this side's transport places an aligned line whole.
    pub line_whole: bool,
    /// Largest frame in bytes that this side receives, all included.
    pub max_frame: u32,
    /// One-sided: length in bytes of the region that this side receives in. Two-sided: a hint.
    pub region_len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    #[test]
    fn the_encoding_of_each_message_is_the_documented_one() {
        let end = End {
            transport: "shm".into(),
            address: vec![9, 8],
            key: [7; 16],
            rules: 5,
            line_whole: true,
            max_frame: 64,
            region_len: 8192,
        };
        let mut end_bytes = vec![3, b's', b'h', b'm', 2, 9, 8];
        end_bytes.extend([7; 16]);
        end_bytes.extend([5, 1, 64, 0x80, 0x40]);
        let with = |head: &[u8], tail: &[u8]| [head, tail].concat();
        let id = [3; 16];
        let welcome = |stream| Message::Welcome {
            epoch: 2,
            machine: 62,
            pid: 1,
            program: "p".into(),
            end: end.clone(),
            stream,
        };
        let cases = [
            (
                Message::Hello { machine: 62, pid: 1, program: "p".into(), transports: vec!["shm".into()] },
                vec![0, 62, 1, 1, b'p', 1, 3, b's', b'h', b'm'],
            ),
            (welcome(None), [&[1, 2, 62, 1, 1, b'p'], &end_bytes[..], &[0]].concat()),
            (
                welcome(Some(StreamOffer {
                    token: [5; 32],
                    share: Share::from_bytes(&[6; 32]),
                    clear: true,
                })),
                [&[1, 2, 62, 1, 1, b'p'], &end_bytes[..], &[1], &[5; 32], &[6; 32], &[1]].concat(),
            ),
            (Message::Ready { end: end.clone(), stream: None }, [&[2], &end_bytes[..], &[0]].concat()),
            (
                Message::Ready {
                    end: end.clone(),
                    stream: Some(StreamAnswer { share: Share::from_bytes(&[6; 32]), clear: false }),
                },
                [&[2], &end_bytes[..], &[1], &[6; 32], &[0]].concat(),
            ),
            (Message::Go, vec![3]),
            (Message::Refuse { cause: MeetRefusal::Policy, text: "t".into() }, vec![4, 8, 1, b't']),
            (
                Message::Refused { token: 300, cause: RefusalCause::Name, text: String::new() },
                vec![5, 0xac, 2, 13, 0],
            ),
            (Message::NeedCode { index: 4, id }, with(&[6, 4], &id)),
            (Message::Closing { text: "t".into() }, vec![7, 1, b't']),
            (Message::Code { id, image: vec![1, 2] }, [&[8][..], &id, &[2, 1, 2]].concat()),
            (Message::NoCode { id }, with(&[9], &id)),
            (Message::Bye, vec![10]),
            (Message::Linked { index: 4, nanoseconds: 300 }, vec![11, 4, 0xac, 2]),
            (Message::Limits(Limits { payload: Some(300), image: Some(1) }), vec![12, 1, 0xac, 2, 1, 1]),
            (Message::Limits(Limits { payload: None, image: Some(300) }), vec![12, 0, 1, 0xac, 2]),
            (Message::Enlarge { frame: 300, payload: 4 }, vec![13, 0xac, 2, 4]),
            (Message::Offer { end: end.clone() }, with(&[14], &end_bytes)),
            (Message::Accept { end: end.clone() }, with(&[15], &end_bytes)),
            (Message::Decline { cause: RefusalCause::TooLarge, text: "t".into() }, vec![16, 9, 1, b't']),
            (Message::Shrink, vec![17]),
            (Message::Ask(Question::Drop { id }), with(&[18, 1], &id)),
            (Message::Answer { bytes: vec![1, 0, 0] }, vec![19, 3, 1, 0, 0]),
            (Message::Rights(Rights::CALL | Rights::EXPORT), vec![20, 18]),
        ];
        for (message, bytes) in cases {
            assert_eq!(postcard::to_stdvec(&message).unwrap(), bytes, "{}", message.name());
            assert_eq!(postcard::from_bytes::<Message>(&bytes).unwrap(), message);
            assert_eq!(
                Message::kind_has_descriptors(bytes[0]),
                message.max_descriptors() != 0,
                "{}",
                message.name()
            );
        }
    }
}
