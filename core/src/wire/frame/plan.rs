//! The layout of a frame, made before it is written. Nothing here reads the memory, which holds a frame of an
//! earlier lap.

use super::{
    CODE_HEADER_LEN, CodePart, DEFAULT_ALIGN_LOG2, FAMILY_LEN, Flags, HEADER_LEN, Header, INLINE_ALIGN_LOG2,
    INLINE_PAYLOAD, Kind, LINE, TRAILER_LEN, payload_offset, put_words,
};
use crate::image::{self, CodeId, FamilyId};
use crate::transport::ArrivalRules;

/// The frames of a link that end with a trailer. Follows from the arrival rule, see [`Trailer::for_rule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trailer {
    /// None: the signal is ordered behind everything else.
    Never,
    /// Those longer than a line: bytes arrive in order, and a line arrives whole.
    LongFrames,
    /// All: a line may be torn too.
    Always,
}

impl Trailer {
    /// The trailers that `rule` needs, on a path on which lines arrive whole or not.
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

/// The plan of a frame: everything but the payload's final length.
///
/// The fields are the sender's own and not checked. The receiver refuses the frame of a plan whose `code`
/// does not fit its `kind`, or with an alignment that no frame can have.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Kind of the frame.
    pub kind: Kind,
    /// Whether the source waits for a reply.
    pub wants_reply: bool,
    /// True if the sender expects a frame back before it sends the next one, see [`Flags::ALONE`].
    pub alone: bool,
    /// Whether the payload ends with a [`Passage`](super::Passage).
    pub travelled: bool,
    /// Code index, or a reply's status.
    pub index: u16,
    /// Token of this call, or of the call that this replies to.
    pub token: u32,
    /// log2 of the payload alignment that the image requests: 3 to 12, or 0 for the default rule.
    pub align_log2: u8,
    /// The code, for exactly the kinds that name code.
    pub code: Option<PlanCode<'a>>,
}

/// Alignment of an image in its frame, in bytes.
const IMAGE_ALIGN: usize = 8;

/// The code that a planned frame names.
#[derive(Clone, Copy, Debug)]
pub struct PlanCode<'a> {
    /// The whole image for [`Kind::CallCode`], [`Kind::CallInPlace`] and [`Kind::Bind`], empty for [`Kind::CallId`] and
    /// [`Kind::CallLocal`].
    pub image: &'a [u8],
    /// The code id.
    pub id: CodeId,
    /// The target's epoch.
    pub epoch: u64,
    /// The name, at most [`MAX_NAME`](super::MAX_NAME) bytes.
    pub name: &'a str,
    /// The family of the code, if its library has images for several platforms.
    pub family: Option<&'a FamilyId>,
}

impl PlanCode<'_> {
    /// Offset of the end of name and family id in the frame, in bytes.
    #[inline]
    pub(crate) fn names_end(&self) -> usize {
        // A branch that is never taken costs less than a computed length.
        let name_end = CODE_HEADER_LEN + self.name.len();
        if self.family.is_some() { name_end + FAMILY_LEN } else { name_end }
    }
}

/// The layout of a planned frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Offset of the payload in the frame, in bytes.
    pub payload: usize,
    /// log2 of the payload's alignment.
    pub align_log2: u8,
    /// Length of the frame in bytes if the payload uses all of its planned space.
    pub frame_len: usize,
    /// The frames of the link that end with a trailer.
    pub trailer: Trailer,
    /// Offset of the image in the frame, in bytes; 0 without an image.
    pub(crate) image: u32,
}

impl Plan<'static> {
    /// A one-way frame of this kind, with index and token 0, that names no code: a base for other plans.
    pub const fn of(kind: Kind) -> Plan<'static> {
        Plan {
            kind,
            wants_reply: false,
            alone: false,
            travelled: false,
            index: 0,
            token: 0,
            align_log2: 0,
            code: None,
        }
    }
}

impl Plan<'_> {
    /// Lays the frame out at an address that is `base` modulo 4096, for a payload of `payload_len` bytes.
    ///
    /// A payload without an alignment of its own is aligned to 8 bytes if it then fits the header's line,
    /// else to 64.
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
            // A short payload directly follows the code: frames that all carry code should be as short as
            // possible.
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

    /// Start of the image, 0 without one, and end of the image or else of the name.
    pub(super) fn image_range(&self, code: &PlanCode<'_>, base: usize) -> (usize, usize) {
        let name_end = code.names_end();
        if code.image.is_empty() {
            return (0, name_end);
        }
        let start = match image::text(code.image) {
            // Code that runs in place is aligned in memory.
            Some(text) if self.kind == Kind::CallInPlace => {
                payload_offset(base, name_end + text.offset, text.align_log2) - text.offset
            }
            _ => name_end.next_multiple_of(IMAGE_ALIGN),
        };
        (start, start + code.image.len())
    }

    /// The header of the frame laid out as `layout`, with the payload's final length, which is at most the
    /// planned one. A shorter payload makes a shorter frame.
    #[inline]
    pub fn header(&self, layout: &Layout, payload_len: usize) -> Header {
        let end = layout.payload + payload_len;
        let trailer = layout.trailer.len_behind(end);
        let frame_len = (end + trailer).next_multiple_of(LINE);
        let mut flags = Flags::from_bits_retain(layout.align_log2);
        flags.set(Flags::TRAILER, trailer != 0);
        self.header_of(frame_len as u32, payload_len as u32, flags)
    }

    /// Writes the frame laid out as `layout` to the start of `into`, private memory, without its payload and
    /// trailer. `payload_len` is the payload's final length. Returns the header; `None`, with nothing
    /// written, if `into` is shorter than the frame.
    pub fn write(&self, layout: &Layout, signal: u64, payload_len: usize, into: &mut [u8]) -> Option<Header> {
        let header = self.header(layout, payload_len);
        let frame = into.get_mut(..header.frame_len as usize)?;
        let [lengths, rest] = header.to_words();
        put_words(frame, &[signal, lengths, rest]);
        self.write_code(layout, frame);
        Some(header)
    }

    /// Writes code header, name and image of a frame laid out as `layout`, if it names code.
    pub(super) fn write_code(&self, layout: &Layout, frame: &mut [u8]) {
        if let (Some(code), Some(part)) = (&self.code, self.code_part(layout)) {
            put_words(&mut frame[HEADER_LEN..], &part.to_words(layout.payload as u32));
            let (name, behind) = frame[CODE_HEADER_LEN..].split_at_mut(code.name.len());
            name.copy_from_slice(code.name.as_bytes());
            if let Some(family) = code.family {
                behind[..FAMILY_LEN].copy_from_slice(&family.0);
            }
            frame[part.image_offset as usize..][..code.image.len()].copy_from_slice(code.image);
        }
    }

    /// The header of a frame whose payload of up to [`INLINE_PAYLOAD`] bytes shares its line. The frame may
    /// be longer.
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
    pub(crate) fn header_of(&self, frame_len: u32, payload_len: u32, mut flags: Flags) -> Header {
        flags.set(Flags::WANTS_REPLY, self.wants_reply);
        flags.set(Flags::ALONE, self.alone);
        flags.set(Flags::TRAVELLED, self.travelled);
        Header { frame_len, payload_len, kind: self.kind, flags, index: self.index, token: self.token }
    }

    /// The code header of a frame that names code, laid out as `layout`.
    pub fn code_part(&self, layout: &Layout) -> Option<CodePart> {
        self.code.as_ref().map(|code| CodePart {
            image_offset: layout.image,
            image_len: code.image.len() as u32,
            id: code.id,
            epoch: code.epoch,
            name_len: code.name.len() as u16,
            family_len: if code.family.is_some() { FAMILY_LEN as u16 } else { 0 },
        })
    }
}
