//! Messages of the control connection.
//!
//! Messages follow the preamble of each direction ([`super::preamble`]). Each has a head of 8 bytes (length
//! of the body, `u32`; number of file descriptors beside it, `u8`; three zero bytes) and a body, a
//! [`Message`] in postcard's encoding. All numbers outside the body are little-endian. If both processes have
//! a key, everything travels in encrypted packets of the Noise protocol.
//!
//! New kinds are added at the end of an enum; the numbers of existing ones never change within a version.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::admin::messages::AdminRequest;
use crate::connection::stream_offer::{StreamAccept, StreamOffer};
use crate::limits::Limits;
use crate::refusal::{RefusalCause, RejectCause};
use crate::rights::Rights;

/// Length of a message's head in bytes.
pub const HEAD_LEN: usize = 8;
/// Longest body of a message during the handshake, in bytes.
pub const MAX_HANDSHAKE_MESSAGE: usize = 64 * 1024;
/// Longest image that travels on a control connection, in bytes.
pub const MAX_CODE: usize = 64 * 1024 * 1024;
/// Longest body of a message after the handshake, in bytes: an image and its fields.
pub const MAX_MESSAGE: usize = MAX_CODE + 4096;
/// Limit of file descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 8;
/// Limit of transports that a source may name.
pub const MAX_TRANSPORTS: usize = 16;
/// Longest name of a transport, in bytes.
pub const MAX_TRANSPORT_NAME: usize = 32;

/// A message of the control connection. The first five, in this order, with [`Message::Rights`] and
/// [`Message::Limits`], are the handshake; the rest may come at any time after it. [`Message::LargeRequest`]
/// begins the setup of a large mailbox, which [`Message::Go`] ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// Source to target: identifies the source.
    Hello {
        /// The source's CPU, encoded ([`farjump_core::cpu::Cpu::encode`]).
        #[serde(with = "serde_bytes")]
        cpu: Vec<u8>,
        /// Process id in the source's own view. For display; the target relies on the system's.
        pid: u32,
        /// Name of the program, for display.
        program: String,
        /// Usable transports, best first: at most [`MAX_TRANSPORTS`].
        #[serde(deserialize_with = "few")]
        transports: Vec<String>,
    },
    /// Target to source: identifies it and its endpoint. The endpoint's descriptors travel beside it.
    Welcome {
        /// The target's epoch: a new one each time a target starts. Code indexes are bound within one.
        epoch: u64,
        /// The CPU that the target claims to have, encoded likewise. A source without an image for it need
        /// not continue.
        #[serde(with = "serde_bytes")]
        cpu: Vec<u8>,
        /// Process id in the target's own view.
        pid: u32,
        /// Name of the program, for display.
        program: String,
        /// Its endpoint.
        endpoint: EndpointInfo,
        /// The stream that it awaits, if the transport's frames travel on one.
        stream: Option<StreamOffer>,
    },
    /// Source to target: gives the source's endpoint. The endpoint's descriptors travel beside it.
    Ready {
        /// Its endpoint.
        endpoint: EndpointInfo,
        /// The stream that it has opened, if one is awaited.
        stream: Option<StreamAccept>,
    },
    /// Target to source: both endpoints are connected, frames may flow.
    Go,
    /// Either way, before [`Message::Go`]: rejects the link. The sender then closes the connection.
    Reject {
        /// The cause.
        cause: RejectCause,
        /// The cause in a sentence for display.
        text: String,
    },
    /// Target to source: a frame was refused. The call with this token fails with this cause.
    Refused {
        /// Token of the frame; 0 if a damaged frame had none.
        token: u32,
        /// The cause.
        cause: RefusalCause,
        /// The cause in a sentence for display.
        text: String,
    },
    /// Target to source: the frame at the head of the mailbox names code that the target does not have. It
    /// waits until [`Message::Code`] or [`Message::NoCode`] comes.
    NeedCode {
        /// The code index that the frame binds.
        index: u16,
        /// The code id.
        id: [u8; 16],
    },
    /// Target to source: the target stops; frames that have not run yet never will.
    Closing {
        /// The reason in a sentence for display.
        text: String,
    },
    /// Source to target: the requested code.
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
    /// Source to target: the source closes the link. Frames sent before it still run.
    Bye,
    /// Target to source: an image was placed for the first time; gives the time that took, for statistics.
    CodeLinked {
        /// The code index bound to it.
        index: u16,
        /// Time from the copy in the target's own memory to callable code.
        nanoseconds: u64,
    },
    /// Target to source, once before [`Message::Go`], if it has limits: the source sends nothing beyond them.
    Limits(Limits),
    /// Source to target: a frame is to come that exceeds the link's mailbox. The response is
    /// [`Message::LargeOffer`] or [`Message::LargeDecline`]. Also releases the link's earlier, empty large
    /// mailbox.
    LargeRequest {
        /// Upper bound of the frame's length in bytes, all included.
        frame: u64,
        /// Upper bound of its payload's length in bytes.
        payload: u64,
    },
    /// Target to source: the target's endpoint of the large mailbox. Its descriptors travel beside it.
    LargeOffer {
        /// Its endpoint, of the link's own transport.
        endpoint: EndpointInfo,
    },
    /// Source to target: the source's endpoint of the large mailbox, with descriptors beside it. The response
    /// is [`Message::Go`], after which frames may lie there, or [`Message::LargeDecline`] if it is too late.
    LargeAccept {
        /// Its endpoint.
        endpoint: EndpointInfo,
    },
    /// Target to source: declines a large mailbox for that frame.
    LargeDecline {
        /// The cause.
        cause: RefusalCause,
        /// The cause in a sentence for display.
        text: String,
    },
    /// Source to target: releases the large mailbox, or the offer of one. It is empty.
    LargeRelease,
    /// An admin request, instead of [`Message::Hello`], from a process that makes no link; its only message.
    AdminRequest(AdminRequest),
    /// Target to requester: the admin response. The target then closes the connection.
    AdminResponse {
        /// An [`AdminResponse`](crate::admin::messages::AdminResponse) in postcard's encoding. Raw bytes, so
        /// that a process that sent no request never allocates the memory that it decodes to.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Target to source, once before [`Message::Go`]: the source's rights, which spare it futile attempts.
    Rights(Rights),
    /// Target to source: the target needs the manifest of a family that a frame named. The frame may wait until
    /// [`Message::Manifest`] or [`Message::NoManifest`] comes.
    NeedManifest {
        /// The family id.
        family: [u8; 16],
    },
    /// Source to target: the requested manifest.
    Manifest {
        /// The family id.
        family: [u8; 16],
        /// Its text.
        #[serde(with = "serde_bytes")]
        text: Vec<u8>,
    },
    /// Source to target: the source has no manifest of that family.
    NoManifest {
        /// The family id.
        family: [u8; 16],
    },
}

/// Decodes one name more than the limit, so that a rejection can report it, and no more: an empty name takes
/// one byte on the wire and many in memory.
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
    /// Returns its name, for error texts and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Hello { .. } => "Hello",
            Message::Welcome { .. } => "Welcome",
            Message::Ready { .. } => "Ready",
            Message::Go => "Go",
            Message::Reject { .. } => "Reject",
            Message::Refused { .. } => "Refused",
            Message::NeedCode { .. } => "NeedCode",
            Message::Closing { .. } => "Closing",
            Message::Code { .. } => "Code",
            Message::NoCode { .. } => "NoCode",
            Message::Bye => "Bye",
            Message::CodeLinked { .. } => "CodeLinked",
            Message::Limits(_) => "Limits",
            Message::LargeRequest { .. } => "LargeRequest",
            Message::LargeOffer { .. } => "LargeOffer",
            Message::LargeAccept { .. } => "LargeAccept",
            Message::LargeDecline { .. } => "LargeDecline",
            Message::LargeRelease => "LargeRelease",
            Message::AdminRequest(_) => "AdminRequest",
            Message::AdminResponse { .. } => "AdminResponse",
            Message::Rights(_) => "Rights",
            Message::NeedManifest { .. } => "NeedManifest",
            Message::Manifest { .. } => "Manifest",
            Message::NoManifest { .. } => "NoManifest",
        }
    }

    /// Returns whether it holds a secret.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, Message::Welcome { stream: Some(_), .. } | Message::Ready { stream: Some(_), .. })
    }

    /// Returns whether messages of this kind, the first byte of a body, may carry file descriptors.
    pub(crate) fn kind_has_descriptors(number: u8) -> bool {
        // Welcome, Ready, LargeOffer, LargeAccept, AdminResponse.
        matches!(number, 1 | 2 | 14 | 15 | 19)
    }

    /// Returns the limit of file descriptors beside it.
    pub(crate) fn max_descriptors(&self) -> usize {
        match self {
            Message::Welcome { .. }
            | Message::Ready { .. }
            | Message::LargeOffer { .. }
            | Message::LargeAccept { .. } => MAX_DESCRIPTORS,
            // The descriptor of an `AdminResponse::Region`.
            Message::AdminResponse { .. } => 1,
            _ => 0,
        }
    }
}

/// A process's endpoint of a link, described for the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndpointInfo {
    /// Name of the transport.
    pub transport: String,
    /// The endpoint address, opaque to all but the transport; its descriptors travel beside the message.
    #[serde(with = "serde_bytes")]
    pub address: Vec<u8>,
    /// Key of the frames that the endpoint receives ([`farjump_core::signal::LinkKey`]).
    pub key: [u8; 16],
    /// The endpoint's arrival rules: bits of [`farjump_core::transport::ArrivalRules`], unknown ones ignored.
    pub rules: u8,
    /// True if the endpoint's transport places an aligned line whole.
    pub line_whole: bool,
    /// Largest frame in bytes that the endpoint receives, all included.
    pub max_frame: u32,
    /// One-sided: length in bytes of the region that the endpoint receives in. Two-sided: a hint.
    pub region_len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    #[test]
    fn the_encoding_of_each_message_is_the_documented_one() {
        let end = EndpointInfo {
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
            cpu: vec![62, 0],
            pid: 1,
            program: "p".into(),
            endpoint: end.clone(),
            stream,
        };
        let cases = [
            (
                Message::Hello {
                    cpu: vec![62, 0, 3],
                    pid: 1,
                    program: "p".into(),
                    transports: vec!["shm".into()],
                },
                vec![0, 3, 62, 0, 3, 1, 1, b'p', 1, 3, b's', b'h', b'm'],
            ),
            (welcome(None), [&[1, 2, 2, 62, 0, 1, 1, b'p'], &end_bytes[..], &[0]].concat()),
            (
                welcome(Some(StreamOffer {
                    token: [5; 32],
                    share: Share::from_bytes(&[6; 32]),
                    clear: true,
                })),
                [&[1, 2, 2, 62, 0, 1, 1, b'p'], &end_bytes[..], &[1], &[5; 32], &[6; 32], &[1]].concat(),
            ),
            (Message::Ready { endpoint: end.clone(), stream: None }, [&[2], &end_bytes[..], &[0]].concat()),
            (
                Message::Ready {
                    endpoint: end.clone(),
                    stream: Some(StreamAccept { share: Share::from_bytes(&[6; 32]), clear: false }),
                },
                [&[2], &end_bytes[..], &[1], &[6; 32], &[0]].concat(),
            ),
            (Message::Go, vec![3]),
            (Message::Reject { cause: RejectCause::Policy, text: "t".into() }, vec![4, 8, 1, b't']),
            (
                Message::Refused { token: 300, cause: RefusalCause::BadName, text: String::new() },
                vec![5, 0xac, 2, 13, 0],
            ),
            (Message::NeedCode { index: 4, id }, with(&[6, 4], &id)),
            (Message::Closing { text: "t".into() }, vec![7, 1, b't']),
            (Message::Code { id, image: vec![1, 2] }, [&[8][..], &id, &[2, 1, 2]].concat()),
            (Message::NoCode { id }, with(&[9], &id)),
            (Message::Bye, vec![10]),
            (Message::CodeLinked { index: 4, nanoseconds: 300 }, vec![11, 4, 0xac, 2]),
            (
                Message::Limits(Limits { payload: 300, image: 1, ..Limits::default() }),
                vec![12, 1, 0xac, 2, 1, 1],
            ),
            (Message::Limits(Limits { image: 300, ..Limits::default() }), vec![12, 0, 1, 0xac, 2]),
            (Message::LargeRequest { frame: 300, payload: 4 }, vec![13, 0xac, 2, 4]),
            (Message::LargeOffer { endpoint: end.clone() }, with(&[14], &end_bytes)),
            (Message::LargeAccept { endpoint: end.clone() }, with(&[15], &end_bytes)),
            (Message::LargeDecline { cause: RefusalCause::TooLarge, text: "t".into() }, vec![16, 9, 1, b't']),
            (Message::LargeRelease, vec![17]),
            (Message::AdminRequest(AdminRequest::Drop { id }), with(&[18, 1], &id)),
            (Message::AdminResponse { bytes: vec![1, 0, 0] }, vec![19, 3, 1, 0, 0]),
            (Message::Rights(Rights::CALL | Rights::EXPORT), vec![20, 18]),
            (Message::NeedManifest { family: id }, with(&[21], &id)),
            (Message::Manifest { family: id, text: vec![1, 2] }, [&[22][..], &id, &[2, 1, 2]].concat()),
            (Message::NoManifest { family: id }, with(&[23], &id)),
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
