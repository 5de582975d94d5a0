//! The file of a library with which a test is linked.
//!
//! A target folder holds libraries of one name from many builds, with other features or by another compiler. Only the
//! compiler's own arguments name the one with which a test is linked, so the macro reads those.

#![deny(missing_docs)]

use std::env;

use proc_macro::{Literal, TokenStream, TokenTree};

/// Expands to the path, a string, of the file that the compiler's arguments name for the crate of this name:
/// `extern_path!("farjump_c")`. It is an `.rlib`, or an `.rmeta` where nothing is linked (`cargo check`).
#[proc_macro]
pub fn extern_path(name: TokenStream) -> TokenStream {
    let name = name.to_string();
    let name = name.trim_matches('"');
    let arguments: Vec<String> = env::args_os().filter_map(|argument| argument.into_string().ok()).collect();
    match arguments.windows(2).find_map(|pair| path_of(name, &pair[0], &pair[1])) {
        Some(path) => TokenTree::from(Literal::string(path)).into(),
        None => format!("compile_error!(\"the compiler was given no crate `{name}`\")")
            .parse()
            .unwrap_or_default(),
    }
}

/// The path in `--extern [OPTIONS:]NAME=PATH` (rustc's book, "Command-line Arguments").
fn path_of<'a>(name: &str, option: &str, value: &'a str) -> Option<&'a str> {
    let (given, path) = value.split_once('=')?;
    (option == "--extern" && given.rsplit(':').next() == Some(name)).then_some(path)
}
