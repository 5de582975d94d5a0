//! The images of a library.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use farjump_core::code::{CodeError, CodeKind, CodeView};
use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, Platform};

use crate::code_id::code_id;
use crate::error::Error;
use crate::library::bundle::{self, ALIGN, Bundle, Sizes};
use crate::library::manifest::Manifest;

/// One image of a library: the code for one platform, or its bitcode for one machine. A clone is another handle on the
/// same bytes, and keeps no library open.
#[derive(Clone)]
pub struct LibraryImage {
    kind: CodeKind,
    id: CodeId,
    sizes: Sizes,
    payload_align_log2: u8,
    span2_len: usize,
    bytes: Lines,
}

/// Bytes that start on a multiple of 64, shared by clones.
#[derive(Clone)]
struct Lines {
    lines: Arc<[Line]>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

impl Lines {
    fn copy_of(bytes: &[u8]) -> Lines {
        let (whole, rest) = bytes.as_chunks::<ALIGN>();
        let mut last = [0; ALIGN];
        last[..rest.len()].copy_from_slice(rest);
        let lines = whole.iter().chain((!rest.is_empty()).then_some(&last)).copied().map(Line).collect();
        Lines { lines, len: bytes.len() }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: lines are bytes without padding, and there are at least `len` of them (`copy_of`).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl LibraryImage {
    /// Checks code, and copies it.
    ///
    /// # Errors
    /// The first fault in the bytes.
    pub fn new(bytes: &[u8], sizes: Sizes) -> Result<LibraryImage, CodeError> {
        let view = CodeView::new_checked(bytes)?;
        let span2_len = match &view {
            CodeView::Image(image) => image.span2_len(),
            CodeView::Bitcode(_) => 0,
        };
        Ok(LibraryImage {
            kind: view.kind(),
            id: code_id(bytes),
            sizes,
            payload_align_log2: view.payload_align_log2(),
            span2_len,
            bytes: Lines::copy_of(bytes),
        })
    }

    /// Returns a placeholder for the code of a function that only its target has. No other code has its id.
    pub fn absent(name: &str, platform: Platform) -> LibraryImage {
        LibraryImage {
            kind: CodeKind::Platform(platform),
            id: code_id(name.as_bytes()),
            sizes: Sizes::default(),
            payload_align_log2: 0,
            span2_len: 0,
            bytes: Lines::copy_of(&[]),
        }
    }

    /// The kind of code: an image for a platform or CPU, or bitcode.
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// The platform of the image. `None` for bitcode, and for an image compiled for one CPU: that runs on CPUs with all
    /// of [`LibraryImage::features`].
    pub fn platform(&self) -> Option<Platform> {
        self.kind.platform()
    }

    /// The CPU features that it needs, ascending. Empty for an image for a platform, and for bitcode.
    pub fn features(&self) -> impl Iterator<Item = &str> {
        let image = match self.view() {
            Some(CodeView::Image(image)) => Some(image),
            _ => None,
        };
        image.into_iter().flat_map(|image| image.features())
    }

    /// Returns whether a target with this CPU accepts it.
    pub fn runs_on(&self, cpu: &Cpu) -> bool {
        self.view().is_some_and(|view| cpu.takes(&view))
    }

    /// Its parts. [`LibraryImage::new`] checked them.
    fn view(&self) -> Option<CodeView<'_>> {
        CodeView::new_checked(self.bytes()).ok()
    }

    /// Its code id.
    pub fn id(&self) -> CodeId {
        self.id
    }

    /// Sizes of its parts; all 0 for bitcode.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// log2 of the alignment that its payload needs, in bytes: 3 to 12, or 0 for the default rule.
    pub fn payload_align_log2(&self) -> u8 {
        self.payload_align_log2
    }

    /// Length in bytes of its writable statics; 0 if it has none, and for bitcode, which does not state the length.
    pub fn span2_len(&self) -> usize {
        self.span2_len
    }

    /// The image as it travels, checked when the library was opened: a copy of the file's contents at that
    /// time, at a multiple of 64 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

impl fmt::Debug for LibraryImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LibraryImage")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("len", &self.bytes.len)
            .finish_non_exhaustive()
    }
}

/// Checks the images of `bundle`, which is in the file at `path`, and copies them.
pub(super) fn check_images(bundle: &Bundle<'_>, path: &Path) -> Result<Vec<LibraryImage>, Error> {
    let check = |(index, image): (usize, &bundle::BundleImage<'_>)| {
        LibraryImage::new(image.bytes, image.sizes).map_err(|source| Error::Image {
            path: path.to_path_buf(),
            index,
            source,
        })
    };
    let images: Vec<_> = bundle.images.iter().enumerate().map(check).collect::<Result<_, Error>>()?;
    check_alignments(&images, path)?;
    Ok(images)
}

/// Checks that all images of the library at `path` have payloads of one alignment.
pub(super) fn check_alignments(images: &[LibraryImage], path: &Path) -> Result<(), Error> {
    let differs = |image: &&LibraryImage| image.payload_align_log2 != images[0].payload_align_log2;
    if let Some(other) = images.iter().find(differs) {
        // A source makes one payload, and chooses the image by the target.
        let platforms = [images[0].kind, other.kind].map(|kind| kind.to_string());
        return Err(Error::PayloadAlignments { path: path.to_path_buf(), platforms });
    }
    Ok(())
}

/// The manifest of those of `images` that are not for one CPU; `None` if there are no images. They are in the
/// file at `path`.
pub(super) fn manifest_of(images: &[LibraryImage], path: &Path) -> Result<Option<Arc<Manifest>>, Error> {
    if images.is_empty() {
        return Ok(None);
    }
    let manifest = Manifest::of(images.iter().map(|image| (image.kind, image.id)));
    manifest
        .map(|manifest| Some(Arc::new(manifest)))
        .map_err(|source| Error::Manifest { path: path.to_path_buf(), source })
}
