//! The functions that are sent, built when the program starts.

use std::fs;
use std::path::Path;

use farjump::Library;
use farjump::build::{Options, build};

use crate::Failed;

/// The libraries of a source.
#[derive(Debug)]
pub struct Functions {
    /// The function that replies the table's geometry: [`crate::table::Geometry`].
    pub table: Library,
    /// The function that replies a block unchanged.
    pub block: Library,
    /// The predicate.
    pub predicate: Library,
}

impl Functions {
    /// Builds them, in a temporary folder. The predicate is that in `predicate`, a C file as `scan.h` describes;
    /// otherwise `below.c`.
    ///
    /// # Errors
    /// Mostly the lack of a C compiler, or a mistake in the file.
    pub fn build(predicate: Option<&Path>) -> Result<Functions, Failed> {
        let folder = tempfile::Builder::new().prefix("farjump-scan-").tempdir()?;
        let folder = folder.path();
        fs::write(folder.join("scan.h"), include_str!("scan.h"))?;
        let built = |source: &Path| -> Result<Library, Failed> {
            let name = source.file_stem().unwrap_or_default().to_string_lossy();
            let output = folder.join(format!("lib{name}.so"));
            // Blocks are long: speed counts for more than the bytes of the image.
            let cflags = vec!["-O3".to_owned(), format!("-I{}", folder.display())];
            let inputs = vec![source.to_owned()];
            build(&Options { inputs, output: output.clone(), cflags, ..Options::default() })?;
            Ok(Library::open(output)?)
        };
        let own = |name: &str, text: &str| -> Result<Library, Failed> {
            let source = folder.join(name);
            fs::write(&source, text)?;
            built(&source)
        };
        Ok(Functions {
            table: own("table.c", include_str!("table.c"))?,
            block: own("block.c", include_str!("block.c"))?,
            predicate: match predicate {
                Some(file) => built(file)?,
                None => own("below.c", include_str!("below.c"))?,
            },
        })
    }
}
