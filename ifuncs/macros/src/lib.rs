//! The attributes of `farjump-ifunc`, which re-exports and documents them.
//!
//! Plain `proc_macro`: `farjump build` compiles these files by rustc alone, on machines without a registry.
//!
//! The crate has no features.

mod ifunc;
mod imports;
mod plain;
mod target_args;
mod tokens;

use proc_macro::TokenStream;

use tokens::Refusal;

/// Makes an ordinary function the ifunc of its file or crate: see the documentation of `farjump_ifunc`.
#[proc_macro_attribute]
pub fn ifunc(arguments: TokenStream, item: TokenStream) -> TokenStream {
    beside(item.clone(), ifunc::expand(arguments, item))
}

/// Declares functions that the target exports: see the documentation of `farjump_ifunc`.
#[proc_macro_attribute]
pub fn imports(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = tokens::no_arguments(arguments, "imports").and_then(|()| imports::expand(item));
    expanded.unwrap_or_else(Refusal::into_tokens)
}

/// Declares the type of `target_args`: see the documentation of `farjump_ifunc`.
#[proc_macro_attribute]
pub fn target_args(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded =
        tokens::no_arguments(arguments, "target_args").and_then(|()| target_args::expand(item.clone()));
    expanded.unwrap_or_else(|refusal| beside(item, Err(refusal)))
}

/// Implements `Plain` for a structure that consists of nothing but its bytes: see the documentation of
/// `farjump_ifunc`.
#[proc_macro_derive(Plain)]
pub fn plain(item: TokenStream) -> TokenStream {
    plain::expand(item).unwrap_or_else(Refusal::into_tokens)
}

/// Returns the item as written, followed by the code made from it. The item also stands beside an error, because
/// otherwise each use of it would be a further error.
fn beside(mut item: TokenStream, expanded: Result<TokenStream, Refusal>) -> TokenStream {
    item.extend(expanded.unwrap_or_else(Refusal::into_tokens));
    item
}
