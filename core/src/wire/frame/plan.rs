//! Laying out a frame before it is written. Nothing here reads what the memory holds: that is a frame of an earlier lap.

use super::{
    CODE_HEADER_LEN, CodePart, DEFAULT_ALIGN_LOG2, Flags, HEADER_LEN, Header, INLINE_ALIGN_LOG2,
    INLINE_PAYLOAD, Kind, LINE, TRAILER_LEN, payload_offset,
};
use crate::image::{self, CodeId};
use crate::transport::ArrivalRules;

/// Which frames of a link end with a trailer. Follows from the arrival rule, see [`Trailer::for_rule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trailer {
    /// None: the signal is ordered behind everything else.
    Never,
    /// Those longer than a line: bytes land in order, and a line lands whole.
    LongFrames,
    /// All: a line may be torn too.
    Always,
}

impl Trailer {
    /// What `rule` needs on a path that places lines whole or not.
    pub fn for_rule(rule: ArrivalRules, line_whole: bool) -> Trailer {
        match rule {
            ArrivalRules::IN_ORDER if line_whole => Trailer::LongFrames,
            ArrivalRules::IN_ORDER | ArrivalRules::CHECKED => Trailer::Always,
            _ => Trailer::Never,
        }
    }

    /// Length in bytes of the trailer of a frame whose other parts end at `end`.
    #[inline]
    const fn len_behind(self, end: usize) -> usize {
        match self {
            Trailer::Never => 0,
            Trailer::LongFrames if end <= LINE => 0,
            Trailer::LongFrames | Trailer::Always => TRAILER_LEN,
        }
    }
}

/// A frame to be made: everything but the payload's final length.
///
/// The fields are the sender's own and not checked: a plan whose `code` does not fit its `kind`, or an alignment that no
/// frame can have, makes a frame that the receiver refuses.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// What it is.
    pub kind: Kind,
    /// Whether the source waits for a reply.
    pub wants_reply: bool,
    /// Whether something comes back before the next frame is sent, see [`Flags::ALONE`].
    pub alone: bool,
    /// Code index, or a reply's status.
    pub index: u16,
    /// The call that this is, or answers.
    pub token: u32,
    /// log2 of the alignment that the image asks for its payload: 3 to 12, or 0 for the default rule.
    pub align_log2: u8,
    /// For the kinds that name code, and for those only.
    pub code: Option<PlanCode<'a>>,
}

/// What the offset of an image in its frame is a multiple of.
const IMAGE_ALIGN: usize = 8;

/// The code that a planned frame names.
#[derive(Clone, Copy, Debug)]
pub struct PlanCode<'a> {
    /// The whole image for [`Kind::CallCode`] and [`Kind::CallInPlace`], empty for [`Kind::CallId`] and [`Kind::CallLocal`].
    pub image: &'a [u8],
    /// Its identity.
    pub id: CodeId,
    /// The target's epoch.
    pub epoch: u64,
    /// The name, at most [`MAX_NAME`](super::MAX_NAME) bytes.
    pub name: &'a str,
}

/// Where the parts of a planned frame go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Offset of the payload in the frame, in bytes.
    pub payload: usize,
    /// log2 of the alignment it has.
    pub align_log2: u8,
    /// Length of the frame in bytes if the payload takes all of what was planned for it.
    pub frame_len: usize,
    /// Which frames of the link a trailer ends.
    pub trailer: Trailer,
    /// Offset of the image in the frame, in bytes; 0 if none travels.
    pub(crate) image: u32,
}

impl Plan<'static> {
    /// A frame of this kind for which nobody waits, with index and token 0, that names no code: to be filled in by what differs.
    pub const fn of(kind: Kind) -> Plan<'static> {
        Plan { kind, wants_reply: false, alone: false, index: 0, token: 0, align_log2: 0, code: None }
    }
}

impl Plan<'_> {
    /// Lays the frame out at an address that is `base` modulo 4096, for a payload of `payload_len` bytes.
    ///
    /// A payload without an alignment of its own is aligned to 8 bytes where that puts it into the header's line, else to
    /// 64.
    #[inline]
    pub fn layout(&self, base: usize, payload_len: usize, trailer: Trailer) -> Layout {
        if self.code.is_none() && payload_len <= INLINE_PAYLOAD {
            let align_log2 = if self.align_log2 == 0 { INLINE_ALIGN_LOG2 } else { self.align_log2 };
            let payload = payload_offset(base, HEADER_LEN, align_log2);
            let end = payload + payload_len;
            if end + trailer.len_behind(end) <= LINE {
                return Layout { payload, align_log2, frame_len: LINE, trailer, image: 0 };
            }
        }
        let align_log2 = match &self.code {
            _ if self.align_log2 != 0 => self.align_log2,
            // Behind code a short payload follows at once: a frame in each of which code travels is not to be longer than need be.
            Some(_) if payload_len <= INLINE_PAYLOAD => INLINE_ALIGN_LOG2,
            _ => DEFAULT_ALIGN_LOG2,
        };
        let (image, behind) = match &self.code {
            None => (0, HEADER_LEN),
            Some(code) => self.image_range(code, base),
        };
        let payload = payload_offset(base, behind, align_log2);
        let end = payload + payload_len;
        Layout {
            payload,
            align_log2,
            frame_len: (end + trailer.len_behind(end)).next_multiple_of(LINE),
            trailer,
            image: image as u32,
        }
    }

    /// Where the image starts, 0 if none travels, and where it or else the name ends.
    fn image_range(&self, code: &PlanCode<'_>, base: usize) -> (usize, usize) {
        let name_end = CODE_HEADER_LEN + code.name.len();
        if code.image.is_empty() {
            return (0, name_end);
        }
        let start = match image::text(code.image) {
            // Code that runs where it lies is aligned in memory.
            Some(text) if self.kind == Kind::CallInPlace => {
                payload_offset(base, name_end + text.offset, text.align_log2) - text.offset
            }
            _ => name_end.next_multiple_of(IMAGE_ALIGN),
        };
        (start, start + code.image.len())
    }

    /// The header of the frame laid out as `layout`, with the payload's final length, which is at most what was planned.
    /// A shorter payload makes a shorter frame.
    #[inline]
    pub fn header(&self, layout: &Layout, payload_len: usize) -> Header {
        let end = layout.payload + payload_len;
        let trailer = layout.trailer.len_behind(end);
        let frame_len = (end + trailer).next_multiple_of(LINE);
        let mut flags = Flags::from_bits_retain(layout.align_log2);
        flags.set(Flags::TRAILER, trailer != 0);
        self.header_of(frame_len as u32, payload_len as u32, flags)
    }

    /// Writes everything but the payload, whose final length is given, and a trailer into `into`, where the frame laid out as
    /// `layout` starts: for frames in memory of one's own. Returns the header; `None`, with nothing written, if `into` is shorter
    /// than the frame.
    pub fn write(&self, layout: &Layout, signal: u64, payload_len: usize, into: &mut [u8]) -> Option<Header> {
        let header = self.header(layout, payload_len);
        let frame = into.get_mut(..header.frame_len as usize)?;
        let [lengths, rest] = header.to_words();
        put_words(frame, &[signal, lengths, rest]);
        if let (Some(code), Some(part)) = (&self.code, self.code_part(layout)) {
            put_words(&mut frame[HEADER_LEN..], &part.to_words(layout.payload as u32));
            frame[CODE_HEADER_LEN..][..code.name.len()].copy_from_slice(code.name.as_bytes());
            frame[part.image_offset as usize..][..code.image.len()].copy_from_slice(code.image);
        }
        Some(header)
    }

    /// The header of a frame of one line, whose payload of up to [`INLINE_PAYLOAD`] bytes shares it. The frame may be longer.
    #[inline(always)]
    pub(crate) fn line_header(&self, frame_len: usize, payload_len: usize) -> Header {
        let flags = Flags::from_bits_retain(INLINE_ALIGN_LOG2);
        self.header_of(frame_len as u32, payload_len as u32, flags)
    }

    /// The header of a frame whose payload starts with its second line. The frame may be longer.
    #[inline(always)]
    pub(crate) fn lines_header(&self, frame_len: usize, payload_len: usize) -> Header {
        let flags = Flags::from_bits_retain(DEFAULT_ALIGN_LOG2);
        self.header_of(frame_len as u32, payload_len as u32, flags)
    }

    #[inline(always)]
    fn header_of(&self, frame_len: u32, payload_len: u32, mut flags: Flags) -> Header {
        flags.set(Flags::WANTS_REPLY, self.wants_reply);
        flags.set(Flags::ALONE, self.alone);
        Header { frame_len, payload_len, kind: self.kind, flags, index: self.index, token: self.token }
    }

    /// The longer header's fields for a frame that names code, laid out as `layout`.
    pub fn code_part(&self, layout: &Layout) -> Option<CodePart> {
        self.code.as_ref().map(|code| CodePart {
            image_offset: layout.image,
            image_len: code.image.len() as u32,
            id: code.id,
            epoch: code.epoch,
            name_len: code.name.len() as u16,
        })
    }
}

fn put_words(into: &mut [u8], words: &[u64]) {
    for (word, bytes) in words.iter().zip(into.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}
