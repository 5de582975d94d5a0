//! A copy of received code.

/// Bytes of an image and its name for which memory is allocated ahead.
const SHORT: usize = 512;

/// An image and the name received with it, in memory that nothing else writes. Neither is checked.
#[derive(Debug, Default)]
pub struct Copied {
    /// The image, followed by the name.
    bytes: Vec<u8>,
    image_len: usize,
}

impl Copied {
    /// Copies an image and its name.
    pub fn new(image: &[u8], name: &[u8]) -> Copied {
        let mut copied = Copied::default();
        copied.set(image, name);
        copied
    }

    /// Replaces the contents by a copy of an image and its name.
    pub fn set(&mut self, image: &[u8], name: &[u8]) {
        self.fill(|bytes| {
            bytes.clear();
            bytes.reserve_exact(image.len() + name.len());
            bytes.extend_from_slice(image);
            bytes.extend_from_slice(name);
            image.len()
        });
    }

    /// Replaces the contents. `fill` gets the old contents, replaces them by the new image followed by its name, and
    /// returns the length of the image.
    #[inline]
    pub fn fill(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> usize) {
        self.image_len = 0;
        let image_len = fill(&mut self.bytes);
        self.image_len = image_len.min(self.bytes.len());
    }

    /// The image; empty if only its id was received.
    #[inline]
    pub fn image(&self) -> &[u8] {
        &self.bytes[..self.image_len]
    }

    /// The name.
    #[inline]
    pub fn name(&self) -> &[u8] {
        &self.bytes[self.image_len..]
    }

    /// Allocates memory for the next code, if that is short, so that its first call allocates none.
    pub fn prepare(&mut self) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(SHORT);
        }
    }

    /// Takes the bytes and the length of the image. Long contents have no more memory than they need.
    #[inline]
    pub(super) fn take(&mut self) -> (Vec<u8>, usize) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() > SHORT {
            bytes.shrink_to_fit();
        }
        (bytes, std::mem::take(&mut self.image_len))
    }
}
