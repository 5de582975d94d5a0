//! Parts of errors in building: locations, and texts of several words.

use std::fmt;

use farjump_loader::ImportCause;

/// The remedy if no driver writes bitcode.
pub(crate) const BITCODE_ADVICE: &str =
    "install clang, or zig (`pip install ziglang`), or name one (Options::cc)";

/// The end of a refusal of an object that requests an executable stack.
pub(crate) const STACK: &str = "asks for an executable stack, which no target has for it: a nested function whose address is \
                                      taken (gcc) needs one. Make it a function of the file, and pass the variables that it uses as arguments";
/// The end of a refusal of code that uses the start or the end of a section.
pub(crate) const BOUNDS: &str = "by which linkers mark a bound of a section: an image keeps no section apart. Put the entries into \
                                    one array, and use its address and length";

/// A location in the input: an object and one of its sections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The object, or the archive and its member in parentheses.
    pub object: String,
    /// The section.
    pub section: String,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}({})", self.object, self.section)
    }
}

/// The target of a pointer in an image, which does not travel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Pointee {
    /// A symbol, or the address if there is no symbol.
    #[error("{0}")]
    Symbol(String),
    /// Data that the linker made only for the build.
    #[error("address {address:#x} of the metadata")]
    Metadata {
        /// Its address.
        address: u64,
    },
}

pub(crate) fn place(site: &Option<Site>) -> String {
    site.as_ref().map_or_else(|| "the image".to_owned(), Site::to_string)
}

/// Joins the inputs for a message; a long list is cut short.
pub(crate) fn list(inputs: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = inputs[..inputs.len().min(SHOWN)].join(", ");
    match inputs.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(crate) fn constructor_advice(cause: &Option<ImportCause>) -> String {
    cause.as_ref().map_or_else(
        || {
            "Make the variable a constant, set it up in NAME_main, or keep source-only code in a shared library of \
             its own"
                .to_owned()
        },
        |cause| format!("A flag of the compiler added it: {cause}"),
    )
}

pub(crate) fn missing_advice(name: &str, mains: &[(String, String)]) -> String {
    let own = format!("{name}_main");
    if mains.iter().any(|(main, _)| *main == own) {
        return ". FARJUMP_COPY_ARGS(NAME) of farjump_ifunc.h defines the payload routines that send the arguments as \
                they are"
            .to_owned();
    }
    if mains.is_empty() {
        return ", nor any other function named *_main. In C++ the routines are extern \"C\"".to_owned();
    }
    let found: Vec<_> = mains.iter().map(|(main, object)| format!("`{main}` in {object}")).collect();
    format!(", but {}. Give the name (Options::name, or in the output: libNAME.so)", found.join(", "))
}
