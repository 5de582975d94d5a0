//! The functions that are sent, built when the program starts.

use std::fs;

use farjump::Library;
use farjump::build::{Options, build};

use crate::Failed;

const HEADER: (&str, &str) = ("graph_shard.h", include_str!("graph_shard.h"));

/// The libraries of both algorithms.
pub struct Functions {
    /// A step of a breadth-first search.
    pub expand: Library,
    /// The triangles of some vertices.
    pub triangles: Library,
}

impl Functions {
    /// Builds both, in a temporary folder.
    ///
    /// # Errors
    /// Mostly the lack of a C compiler.
    pub fn build() -> Result<Functions, Failed> {
        let folder = tempfile::Builder::new().prefix("farjump-graph-").tempdir()?;
        let folder = folder.path();
        fs::write(folder.join(HEADER.0), HEADER.1)?;
        let library = |name: &str, text: &str| -> Result<Library, Failed> {
            let source = folder.join(format!("{name}.c"));
            fs::write(&source, text)?;
            let output = folder.join(format!("lib{name}.so"));
            // Lists are long: speed counts for more than the bytes of the image.
            let cflags = vec!["-O3".to_owned()];
            build(&Options { inputs: vec![source], output: output.clone(), cflags, ..Options::default() })?;
            Ok(Library::open(output)?)
        };
        Ok(Functions {
            expand: library("expand", include_str!("expand.c"))?,
            triangles: library("triangles", include_str!("triangles.c"))?,
        })
    }
}
