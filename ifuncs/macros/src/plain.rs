//! `#[derive(Plain)]`: structures that consist of nothing but their bytes.

use proc_macro::{Delimiter, Span, TokenStream, TokenTree};

use crate::tokens::{Head, Refusal, at_commas, code, group, head, is_punct, is_word, structure};

/// Implements `Plain`. The compiler checks that each field is plain, and that no padding lies between them.
pub(crate) fn expand(item: TokenStream) -> Result<TokenStream, Refusal> {
    let head = head(item);
    let fixed = head.representations().iter().any(|word| word == "C" || word == "transparent");
    let structure = structure(head.rest, "#[derive(Plain)]")?;
    let span = structure.name.span();
    if !fixed {
        let text = format!(
            "`{}` has no layout that source and target agree on: write #[repr(C)] before it",
            structure.name
        );
        return Err(Refusal::new(span, text));
    }
    let fields = match structure.body.first() {
        Some(TokenTree::Group(group)) => at_commas(group.stream())
            .into_iter()
            .map(|field| type_of(field, group.delimiter()))
            .collect::<Result<Vec<_>, _>>()?,
        _ => Vec::new(),
    };
    let name = TokenStream::from(TokenTree::Ident(structure.name));
    let mut body = TokenStream::new();
    let mut sizes = TokenStream::new();
    for field in fields {
        body.extend(code("::farjump_ifunc::is_plain::<"));
        body.extend(field.clone());
        body.extend(code(">();"));
        sizes.extend(code("+ ::core::mem::size_of::<"));
        sizes.extend(field);
        sizes.extend(code(">()"));
    }
    let mut check = code("::core::mem::size_of::<");
    check.extend(name.clone());
    check.extend(code("> () == 0"));
    check.extend(sizes);
    check.extend(code(
        ", \"the structure has padding, whose bytes are undefined: add fields that fill it, or order them by size\"",
    ));
    body.extend(code("::core::assert!"));
    body.extend([
        group(Delimiter::Parenthesis, check),
        TokenTree::Punct(proc_macro::Punct::new(';', proc_macro::Spacing::Alone)),
    ]);

    let mut out = code(
        "// SAFETY: the constant below checks each field, and that there are no other bytes.
        unsafe impl ::farjump_ifunc::Plain for",
    );
    out.extend(name);
    out.extend(code("{}"));
    out.extend(code("const _: () ="));
    out.extend([group(Delimiter::Brace, body)]);
    out.extend(code(";"));
    let mut block = code("const _: () =");
    block.extend([group(Delimiter::Brace, out)]);
    block.extend(code(";"));
    Ok(block)
}

/// Returns the type of a field, for a structure with these delimiters.
fn type_of(field: Vec<TokenTree>, delimiter: Delimiter) -> Result<TokenStream, Refusal> {
    let span = field.first().map_or_else(Span::call_site, TokenTree::span);
    let Head { mut rest, .. } = head(field.into_iter().collect());
    if delimiter == Delimiter::Parenthesis {
        return Ok(rest.collect());
    }
    match (rest.next(), rest.next()) {
        (Some(TokenTree::Ident(_)), Some(colon)) if is_punct(&colon, ':') => Ok(rest.collect()),
        (Some(word), _) if is_word(&word, "where") => Ok(TokenStream::new()),
        _ => Err(Refusal::new(span, "this is no field with a name and a type")),
    }
}
