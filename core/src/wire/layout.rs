//! Offsets of the fields of frames and images, in bytes, each named once. The tables in [`super::frame`] and
//! [`super::image`] say what the fields hold.

/// Words of a frame.
pub(crate) mod frame {
    /// The signal, which is written last.
    pub(crate) const SIGNAL: usize = 0;
    /// Lengths of the frame and of its payload. Everything from here on is written before the signal.
    pub(crate) const LENGTHS: usize = 8;
    /// Kind, flags, code index and token.
    pub(crate) const REST: usize = 16;
    /// The code header: the image's offset and length, the code id's halves, the epoch, and [`PAYLOAD`].
    pub(crate) const CODE: [usize; 5] = [24, 32, 40, 48, PAYLOAD];
    /// In the code header, the payload's offset and the name's length.
    pub(crate) const PAYLOAD: usize = 56;
}

/// Fields of an image.
pub(crate) mod image {
    /// The magic, then the format's version.
    pub(crate) const VERSION: usize = 3;
    /// The ELF machine, two bytes.
    pub(crate) const MACHINE: usize = 4;
    /// The ABI and the CPU level, one byte.
    pub(crate) const ABI: usize = 6;
    /// Both alignments, one byte.
    pub(crate) const ALIGN: usize = 7;
    /// Length of span 1, four bytes.
    pub(crate) const SPAN1_LEN: usize = 8;
    /// Offset of the entry, four bytes.
    pub(crate) const ENTRY: usize = 12;
    /// Length of the data, four bytes.
    pub(crate) const DATA_LEN: usize = 16;
    /// Length of the zeroes, four bytes.
    pub(crate) const BSS_LEN: usize = 20;
    /// Number of imports, two bytes.
    pub(crate) const IMPORTS: usize = 24;
    /// Number of relative sites, two bytes.
    pub(crate) const RELATIVES: usize = 26;
    /// Length of the name table and number of wanted libraries, four bytes.
    pub(crate) const NAMES: usize = 28;

    /// Fields of one import.
    pub(crate) mod import {
        /// The location to write, four bytes.
        pub(crate) const SITE: usize = 0;
        /// Offset of the name, four bytes.
        pub(crate) const NAME: usize = 4;
        /// The addend, eight bytes.
        pub(crate) const ADDEND: usize = 8;
        /// Length of the entry.
        pub(crate) const LEN: usize = 16;
    }

    /// Fields of one relative site.
    pub(crate) mod relative {
        /// The location to write, four bytes.
        pub(crate) const SITE: usize = 0;
        /// The location that it points at, four bytes.
        pub(crate) const POINTEE: usize = 4;
        /// Length of the entry.
        pub(crate) const LEN: usize = 8;
    }
}
