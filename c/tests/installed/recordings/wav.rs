//! WAV files: real ones, and invalid ones.

use std::fs;
use std::path::{Path, PathBuf};

/// A sound, in a WAV file's terms.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sound {
    pub(crate) rate: u32,
    pub(crate) channels: u16,
    pub(crate) bits: u16,
    pub(crate) pcm: Vec<u8>,
}

impl Sound {
    pub(crate) fn new(channels: u16, bits: u16, pcm: Vec<u8>) -> Sound {
        Sound { rate: 22050, channels, bits, pcm }
    }

    /// Returns the sound of a file with the usual 44 bytes before the samples and nothing behind them.
    pub(crate) fn of_plain_file(path: &Path) -> Sound {
        let bytes = fs::read(path).unwrap();
        assert!(
            &bytes[..4] == b"RIFF" && &bytes[8..16] == b"WAVEfmt " && &bytes[36..40] == b"data",
            "{path:?}"
        );
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((u16_at(20), u32_at(40) as usize), (1, bytes.len() - 44), "{path:?}");
        Sound { rate: u32_at(24), channels: u16_at(22), bits: u16_at(34), pcm: bytes[44..].to_vec() }
    }

    pub(crate) fn format(&self) -> Chunk {
        let together = self.channels * self.bits / 8;
        let mut format = Vec::new();
        format.extend(1_u16.to_le_bytes());
        format.extend(self.channels.to_le_bytes());
        format.extend(self.rate.to_le_bytes());
        format.extend((self.rate * u32::from(together)).to_le_bytes());
        format.extend(together.to_le_bytes());
        format.extend(self.bits.to_le_bytes());
        Chunk(*b"fmt ", format)
    }

    pub(crate) fn samples(&self) -> Chunk {
        Chunk(*b"data", self.pcm.clone())
    }

    /// Returns the most common form of a file.
    pub(crate) fn plain(&self) -> Vec<u8> {
        form(&[self.format(), self.samples()])
    }
}

/// A chunk: its name, and its contents.
#[derive(Clone)]
pub(crate) struct Chunk(pub(crate) [u8; 4], pub(crate) Vec<u8>);

/// Returns a WAV file of these chunks, each padded to an even length.
pub(crate) fn form(chunks: &[Chunk]) -> Vec<u8> {
    let mut body = b"WAVE".to_vec();
    for Chunk(name, content) in chunks {
        body.extend(name);
        body.extend((content.len() as u32).to_le_bytes());
        body.extend(content);
        body.resize(body.len().next_multiple_of(2), 0);
    }
    [b"RIFF".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// Writes a file into a folder.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name).with_extension("wav");
    fs::write(&path, bytes).unwrap();
    path
}
