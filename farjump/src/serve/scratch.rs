//! Buffers for code and misaligned payload.

use farjump_core::channel::Contents;
use farjump_core::frame::Header;
use farjump_loader::Copied;

/// Reused buffers.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) code: Copied,
    payload: Vec<u8>,
}

impl Scratch {
    /// Payload at an address that is a multiple of `align` bytes: where it is, or as a copy.
    pub(super) fn aligned(&mut self, payload: &mut [u8], align: usize) -> *mut u8 {
        if payload.as_ptr().addr().is_multiple_of(align) {
            return payload.as_mut_ptr();
        }
        self.payload.clear();
        self.payload.resize(payload.len() + align, 0);
        let skip = self.payload.as_ptr().align_offset(align).min(align);
        self.payload[skip..skip + payload.len()].copy_from_slice(payload);
        self.payload[skip..].as_mut_ptr()
    }

    /// Memory for a payload of `len` bytes at an address that is a multiple of `align` bytes, a power of two: zeros.
    /// `None` if there is no memory.
    pub(super) fn lend(&mut self, len: usize, align: usize) -> Option<&mut [u8]> {
        let whole = len.checked_add(align)?;
        self.payload.clear();
        self.payload.try_reserve(whole).ok()?;
        self.payload.resize(whole, 0);
        let skip = self.payload.as_ptr().align_offset(align).min(align);
        Some(&mut self.payload[skip..skip + len])
    }

    /// Copies the payload of a frame with this header to an address aligned to `align` bytes: as many bytes
    /// as the header says, whatever there is to copy.
    #[cold]
    pub(super) fn align(&mut self, header: &Header, frame: Contents<'_>, align: usize) -> *mut u8 {
        let len = header.payload_len as usize;
        self.payload.clear();
        self.payload.resize(len + align, 0);
        let skip = self.payload.as_ptr().align_offset(align).min(align);
        frame.copy_payload_to(&mut self.payload[skip..skip + len]);
        self.payload[skip..].as_mut_ptr()
    }
}
