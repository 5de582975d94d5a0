//! The bundle of an ifunc library: its name, and its image for each architecture. `farjump build` puts it
//! into an allocated section (in memory after `dlopen`, kept by `strip`), at a multiple of 64, as the data
//! symbol [`SYMBOL`]. All numbers are little-endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4, 4 | magic `FJB` and the format's version, 1; length of the whole, these eight bytes included |
//! | 8 | 2, 2 | length of the name; number of images |
//! | 12 | | the name, ASCII; then zeroes up to the next multiple of 4 |
//! | | 28 each | images: offset, length, then sizes of text, read-only data, GOT, data, bss (for display) |
//! | | | the images in that order, each at the next multiple of 64, zeroes between |

/// Name of the data symbol at which the bundle of a library starts. `farjump inspect` finds it in the file by
/// the same symbol.
pub const SYMBOL: &str = "farjump_bundle";
/// Start of the name of the section with an image's symbols: the linker's output for the image, an ELF file
/// linked at address 0. The image's code id, in hexadecimal digits, follows. The section is not allocated: it
/// exists only in the file, and `llvm-strip` and `strip -R '.farjump.symbols.*'` remove it.
pub const SYMBOLS_SECTION: &str = ".farjump.symbols.";
/// In these symbols, sections at this address and above are not placed with the image.
pub const NOT_PLACED: u64 = 0x5000_0000;
/// Alignment of a bundle, and of each image in it, in bytes.
pub const ALIGN: usize = 64;
/// Longest name of an ifunc, in bytes.
pub const MAX_NAME: usize = 255;

const MAGIC: [u8; 4] = *b"FJB\x01";
const HEADER_LEN: usize = 12;
const ENTRY_LEN: usize = 28;

/// Sizes of an image's parts, in bytes. For display: only the image itself decides which code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Sizes {
    /// Instructions.
    pub text: u32,
    /// Constants, including tables of addresses that are patched when the image is placed.
    pub rodata: u32,
    /// Global offset table: a word for each symbol that code reaches through it.
    pub got: u32,
    /// Initialised writable statics.
    pub data: u32,
    /// Zeroed writable statics; they take no space in the image.
    pub bss: u32,
}

/// One image of a library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleImage<'a> {
    /// Sizes of its parts.
    pub sizes: Sizes,
    /// The image as it travels. Not checked: [`farjump_core::image::ImageView::new_checked`] does that.
    pub bytes: &'a [u8],
}

/// The name of an ifunc, and its images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle<'a> {
    /// NAME of the routines; passes [`is_name`].
    pub name: &'a str,
    /// At most one for each architecture, and at least one.
    pub images: Vec<BundleImage<'a>>,
}

/// The reasons why bytes are no bundle.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The first three bytes are not `FJB`.
    #[error("these bytes are no bundle of images: they do not start with FJB")]
    Magic,
    /// Made by another version of farjump.
    #[error("bundle of images has format version {0}, this farjump reads version 1: build the library again")]
    Version(u8),
    /// Fewer bytes than the bundle's length, or than its table needs.
    #[error("bundle of images is truncated: it needs {needed} bytes and has {found}")]
    Truncated {
        /// Bytes needed.
        needed: u64,
        /// Bytes present.
        found: u64,
    },
    /// Bytes behind the end, or an end other than that of the last image.
    #[error("bundle of images is too long: its parts end at {end}, and it has {found} bytes")]
    Overlong {
        /// End of the parts.
        end: u64,
        /// Bytes present.
        found: u64,
    },
    /// A name that no ifunc can have.
    #[error(
        "bundle of images has no usable name: an ifunc's name is a C identifier of at most {MAX_NAME} characters"
    )]
    Name,
    /// No image.
    #[error("bundle has no images: build the library again")]
    Empty,
    /// An image at an offset that does not follow from order and alignment.
    #[error("image {index} of the bundle is at {found} instead of {expected}")]
    Offset {
        /// Its position in the table.
        index: usize,
        /// The correct offset.
        expected: u64,
        /// The offset in the table.
        found: u64,
    },
    /// Padding bytes that are not zero.
    #[error("bundle of images has bytes other than zero in its padding")]
    Padding,
    /// More images or bytes than the format can express.
    #[error("bundle of images is too large: it holds at most 65535 images and 4 GiB")]
    TooLarge,
}

/// Returns whether `name` can name an ifunc: a C identifier of ASCII characters, at most [`MAX_NAME`] long. So it is
/// neither empty nor a path, and every compiler can make the symbol `NAME_main`.
pub fn is_name(name: &str) -> bool {
    name_in(name.as_bytes()).is_some()
}

/// Returns `bytes` as a name; `None` if they are no name.
#[inline]
pub(crate) fn name_in(bytes: &[u8]) -> Option<&str> {
    let head = bytes.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_');
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // SAFETY: `of_name` accepts only ASCII characters.
    (head && bytes.len() <= MAX_NAME && bytes.iter().all(of_name))
        .then(|| unsafe { std::str::from_utf8_unchecked(bytes) })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

impl<'a> Bundle<'a> {
    /// Length in bytes of the bundle that starts with `prefix`: a reader that has only its address can then make a
    /// slice.
    ///
    /// # Errors
    /// [`BundleError::Magic`], [`BundleError::Version`], or [`BundleError::Truncated`] for an impossible
    /// length.
    pub fn total_len(prefix: &[u8; 8]) -> Result<usize, BundleError> {
        if prefix[..3] != MAGIC[..3] {
            return Err(BundleError::Magic);
        }
        if prefix[3] != MAGIC[3] {
            return Err(BundleError::Version(prefix[3]));
        }
        let len = word(prefix, 4) as usize;
        if len < HEADER_LEN {
            return Err(BundleError::Truncated { needed: HEADER_LEN as u64, found: len as u64 });
        }
        Ok(len)
    }

    /// Reads a bundle, checking every length and offset in it. `bytes` is exactly the bundle
    /// ([`Bundle::total_len`]).
    ///
    /// # Errors
    /// The first error found, see [`BundleError`]. Nothing outside `bytes` is read, whatever they hold.
    pub fn parse(bytes: &'a [u8]) -> Result<Bundle<'a>, BundleError> {
        let found = bytes.len() as u64;
        let prefix =
            bytes.first_chunk().ok_or(BundleError::Truncated { needed: HEADER_LEN as u64, found })?;
        let total = Bundle::total_len(prefix)?;
        if bytes.len() < total {
            return Err(BundleError::Truncated { needed: total as u64, found });
        }
        if bytes.len() > total {
            return Err(BundleError::Overlong { end: total as u64, found });
        }
        let name_end = HEADER_LEN + half(bytes, 8);
        let count = half(bytes, 10);
        let table = name_end.next_multiple_of(4);
        let table_end = table + count * ENTRY_LEN;
        if bytes.len() < table_end {
            return Err(BundleError::Truncated { needed: table_end as u64, found });
        }
        let name = core::str::from_utf8(&bytes[HEADER_LEN..name_end]).map_err(|_| BundleError::Name)?;
        if !is_name(name) {
            return Err(BundleError::Name);
        }
        if count == 0 {
            return Err(BundleError::Empty);
        }
        let mut zeroes = bytes[name_end..table].iter().all(|&byte| byte == 0);
        let mut end = table_end as u64;
        let mut images = Vec::with_capacity(count);
        for index in 0..count {
            let at = table + index * ENTRY_LEN;
            let (offset, len) = (u64::from(word(bytes, at)), u64::from(word(bytes, at + 4)));
            let expected = end.next_multiple_of(ALIGN as u64);
            if offset != expected {
                return Err(BundleError::Offset { index, expected, found: offset });
            }
            if offset + len > found {
                return Err(BundleError::Truncated { needed: offset + len, found });
            }
            zeroes &= bytes[end as usize..offset as usize].iter().all(|&byte| byte == 0);
            end = offset + len;
            let [text, rodata, got, data, bss] = [8, 12, 16, 20, 24].map(|field| word(bytes, at + field));
            images.push(BundleImage {
                sizes: Sizes { text, rodata, got, data, bss },
                bytes: &bytes[offset as usize..end as usize],
            });
        }
        if end != found {
            return Err(BundleError::Overlong { end, found });
        }
        if !zeroes {
            return Err(BundleError::Padding);
        }
        Ok(Bundle { name, images })
    }

    /// The bytes to embed, at a multiple of [`ALIGN`].
    ///
    /// # Errors
    /// [`BundleError::Name`], [`BundleError::Empty`] or [`BundleError::TooLarge`].
    pub fn encode(&self) -> Result<Vec<u8>, BundleError> {
        if !is_name(self.name) {
            return Err(BundleError::Name);
        }
        if self.images.is_empty() {
            return Err(BundleError::Empty);
        }
        let count = u16::try_from(self.images.len()).map_err(|_| BundleError::TooLarge)?;
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        let mut end = out.len() + self.images.len() * ENTRY_LEN;
        for image in &self.images {
            let offset = end.next_multiple_of(ALIGN);
            end = offset + image.bytes.len();
            if u32::try_from(end).is_err() {
                return Err(BundleError::TooLarge);
            }
            let Sizes { text, rodata, got, data, bss } = image.sizes;
            for word in [offset as u32, image.bytes.len() as u32, text, rodata, got, data, bss] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        for image in &self.images {
            out.resize(out.len().next_multiple_of(ALIGN), 0);
            out.extend_from_slice(image.bytes);
        }
        let total = out.len() as u32;
        out[4..8].copy_from_slice(&total.to_le_bytes());
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let sizes = Sizes { text: 1, rodata: 2, got: 3, data: 4, bss: 5 };
        let images = vec![
            BundleImage { sizes, bytes: b"first" },
            BundleImage { sizes: Sizes::default(), bytes: b"2" },
        ];
        Bundle { name: "sum", images }.encode().unwrap()
    }

    #[test]
    fn an_encoded_bundle_parses_and_its_prefix_states_its_length() {
        let bytes = sample();
        let bundle = Bundle::parse(&bytes).unwrap();
        assert_eq!(bundle.name, "sum");
        assert_eq!(bundle.images[0].bytes, b"first");
        assert_eq!(bundle.images[0].sizes, Sizes { text: 1, rodata: 2, got: 3, data: 4, bss: 5 });
        assert_eq!(bundle.images[1].bytes, b"2");
        assert_eq!(Bundle::total_len(bytes.first_chunk().unwrap()), Ok(bytes.len()));
        assert_eq!(bundle.encode().unwrap(), bytes);
    }

    #[test]
    fn images_start_on_multiples_of_64() {
        let bytes = sample();
        for image in Bundle::parse(&bytes).unwrap().images {
            assert_eq!((image.bytes.as_ptr() as usize - bytes.as_ptr() as usize) % ALIGN, 0);
        }
    }

    #[test]
    fn every_truncation_and_one_byte_more_is_refused() {
        let bytes = sample();
        for len in 0..bytes.len() {
            assert!(matches!(Bundle::parse(&bytes[..len]), Err(BundleError::Truncated { .. })), "{len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(matches!(Bundle::parse(&longer), Err(BundleError::Overlong { .. })));
        longer[4..8].copy_from_slice(&(bytes.len() as u32 + 1).to_le_bytes());
        assert!(matches!(Bundle::parse(&longer), Err(BundleError::Overlong { .. })));
    }

    #[test]
    fn each_bad_field_has_an_error_of_its_own() {
        let bad = |at: usize, value: u8| {
            let mut bytes = sample();
            bytes[at] = value;
            Bundle::parse(&bytes).unwrap_err()
        };
        assert_eq!(bad(0, b'X'), BundleError::Magic);
        assert_eq!(bad(3, 2), BundleError::Version(2));
        assert_eq!(bad(12, b'/'), BundleError::Name);
        assert_eq!(bad(12, 0xff), BundleError::Name);
        assert_eq!(bad(15, 1), BundleError::Padding);
        assert_eq!(bad(16, 1), BundleError::Offset { index: 0, expected: 128, found: 1 });
        assert!(matches!(bad(23, 0xff), BundleError::Truncated { .. }));
        assert_eq!(bad(10, 0), BundleError::Empty);
        let mut short = sample();
        short[4..8].copy_from_slice(&11_u32.to_le_bytes());
        assert_eq!(Bundle::parse(&short), Err(BundleError::Truncated { needed: 12, found: 11 }));
    }

    #[test]
    fn paths_and_empty_and_overlong_names_are_no_names() {
        for name in ["", "a/b", "..", "a b", "9lives", "naïve", "a\n", &"x".repeat(256)] {
            assert!(!is_name(name), "{name:?}");
            assert_eq!(Bundle { name, images: vec![] }.encode(), Err(BundleError::Name));
        }
        for name in ["a", "_x9", "crc32", &"x".repeat(255)] {
            assert!(is_name(name), "{name:?}");
        }
        assert_eq!(Bundle { name: "a", images: vec![] }.encode(), Err(BundleError::Empty));
    }

    proptest! {
        #[test]
        fn any_bundle_survives_encoding(
            name in "[a-z_][a-z0-9_]{0,40}",
            images in prop::collection::vec((any::<[u32; 5]>(), prop::collection::vec(any::<u8>(), 0..300)), 1..4),
        ) {
            let images = images.iter().map(|(sizes, bytes)| {
                let [text, rodata, got, data, bss] = *sizes;
                BundleImage { sizes: Sizes { text, rodata, got, data, bss }, bytes }
            }).collect();
            let bundle = Bundle { name: &name, images };
            let bytes = bundle.encode().unwrap();
            prop_assert_eq!(Bundle::parse(&bytes).unwrap(), bundle);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            patches in prop::collection::vec((0_usize..160, any::<u8>()), 0..6),
            from_sample: bool,
        ) {
            if from_sample {
                bytes = sample();
                for (at, value) in patches {
                    bytes[at] = value;
                }
            }
            if let Ok(bundle) = Bundle::parse(&bytes) {
                prop_assert_eq!(bundle.encode().unwrap(), bytes);
            }
        }
    }
}
