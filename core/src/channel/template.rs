//! Frame templates: the code part of frames that repeat, built once.

use alloc::boxed::Box;

use super::send::Space;
use super::{Channel, Path, Reserved};
use crate::frame::{
    DEFAULT_ALIGN_LOG2, HEADER_LEN, INLINE_ALIGN_LOG2, INLINE_PAYLOAD, LINE, Layout, Plan, Trailer,
};
use crate::memory::Memory;
use crate::sync::Ordering;
use crate::wire::layout::frame::PAYLOAD;

/// The bytes between header and payload of frames that name the same code. Made by [`Channel::template`], for
/// frames of that channel.
#[derive(Debug)]
pub struct FrameTemplate {
    /// The frame's bytes from the code header on, with a payload offset of 0.
    bytes: Box<[u8]>,
    /// The word at [`PAYLOAD`], with a payload offset of 0.
    word: u64,
    image_offset: u32,
    image_len: usize,
}

impl FrameTemplate {
    /// Length in bytes of the image in the template; 0 if it holds only a name or an id.
    pub fn image_len(&self) -> usize {
        self.image_len
    }
}

impl Channel {
    /// The template of frames like `plan`, for [`Channel::reserve_from_template`]. `None` for frames that
    /// name no code or whose payload wants an alignment, and on all paths but mapped rings.
    pub fn template(&self, plan: &Plan<'_>) -> Option<FrameTemplate> {
        let Path::OneSided(path) = &self.path else { return None };
        if !path.is_mapped() || self.trailer != Trailer::Never || plan.align_log2 != 0 {
            return None;
        }
        let layout = plan.layout(0, 0, self.trailer);
        let mut frame = alloc::vec![0; layout.frame_len];
        plan.write(&layout, 0, 0, &mut frame)?;
        let part = plan.code_part(&layout)?;
        let end = (part.image_offset + part.image_len) as usize;
        let end = end.max(part.names_end());
        let [.., word] = part.to_words(0);
        frame[PAYLOAD..][..8].copy_from_slice(&word.to_le_bytes());
        let (image_offset, image_len) = (part.image_offset, part.image_len as usize);
        Some(FrameTemplate { bytes: frame.get(HEADER_LEN..end)?.into(), word, image_offset, image_len })
    }

    /// [`Channel::reserve`] for a plan like the one that `template` was made of. `None` without space before
    /// the ring's end: call `reserve` then.
    #[inline]
    pub fn reserve_from_template(
        &mut self,
        template: &FrameTemplate,
        payload: usize,
    ) -> Option<Reserved<'_>> {
        let Path::OneSided(path) = &mut self.path else { return None };
        if payload > self.send_limit || !path.lines_are_open() {
            return None;
        }
        // Same rule as `Plan::layout`: frames start on a line, so the position does not matter.
        let align_log2 = if payload <= INLINE_PAYLOAD { INLINE_ALIGN_LOG2 } else { DEFAULT_ALIGN_LOG2 };
        let offset = (HEADER_LEN + template.bytes.len()).next_multiple_of(1 << align_log2);
        let frame_len = (offset + payload).next_multiple_of(LINE);
        if frame_len > self.send_limit {
            return None;
        }
        let at = path.out.space(frame_len)?;
        let ring = path.out.ring();
        ring.write(at + HEADER_LEN, &template.bytes);
        ring.store(at + PAYLOAD, template.word | offset as u64, Ordering::Relaxed);
        let start = ring.pointer(at, frame_len);
        let layout = Layout {
            payload: offset,
            align_log2,
            frame_len,
            trailer: Trailer::Never,
            image: template.image_offset,
        };
        // SAFETY: the payload lies inside the frame's space, which `pointer` has checked.
        let at = unsafe { start.add(offset) };
        Some(Reserved::new(self, Space { payload: at, len: payload, layout }))
    }
}
