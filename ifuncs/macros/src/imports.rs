//! `#[imports]`: functions that the target exports.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::tokens::{Refusal, code, group, head, is_punct, is_word};

/// Marks the block `unsafe`, and as `safe` each function whose parameters have no raw pointer.
pub(crate) fn expand(item: TokenStream) -> Result<TokenStream, Refusal> {
    let mut head = head(item);
    if head.rest.peek().is_some_and(|word| is_word(word, "unsafe")) {
        head.rest.next();
    }
    let block = "#[imports] is for a block of declarations: extern \"C\" { fn store_get(key: u64) -> u64; }";
    let first = head.rest.next();
    let span = first.as_ref().map_or_else(Span::call_site, TokenTree::span);
    let (Some(word), Some(abi), Some(TokenTree::Group(body)), None) =
        (first, head.rest.next(), head.rest.next(), head.rest.next())
    else {
        return Err(Refusal::new(span, block));
    };
    if !is_word(&word, "extern") || body.delimiter() != Delimiter::Brace {
        return Err(Refusal::new(span, block));
    }
    if abi.to_string() != "\"C\"" {
        return Err(Refusal::new(
            abi.span(),
            "a target's exports are called as C functions are: extern \"C\"",
        ));
    }
    let mut out = head.written;
    out.extend(code("unsafe"));
    out.extend([word, abi]);
    out.extend([group(Delimiter::Brace, declarations(&body)?)]);
    Ok(out)
}

fn declarations(body: &Group) -> Result<TokenStream, Refusal> {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let mut out = TokenStream::new();
    for (index, token) in tokens.iter().enumerate() {
        let marked = index > 0 && ["safe", "unsafe"].iter().any(|mark| is_word(&tokens[index - 1], mark));
        if is_word(token, "fn") && !marked {
            let parameters = tokens[index..].iter().find_map(|token| match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                    Some(group.stream())
                }
                _ => None,
            });
            let mark = if parameters.is_some_and(takes_pointers) { "unsafe" } else { "safe" };
            out.extend([TokenTree::Ident(Ident::new(mark, token.span()))]);
        }
        if let TokenTree::Group(group) = token
            && group.delimiter() == Delimiter::Brace
        {
            return Err(Refusal::new(group.span(), "an import has no body: the target has the function"));
        }
        out.extend([token.clone()]);
    }
    Ok(out)
}

/// Returns whether a type among these tokens is or contains a raw pointer.
fn takes_pointers(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let pair = |pair: &[TokenTree]| {
        is_punct(&pair[0], '*') && (is_word(&pair[1], "const") || is_word(&pair[1], "mut"))
    };
    tokens.windows(2).any(pair)
        || tokens
            .iter()
            .any(|token| matches!(token, TokenTree::Group(group) if takes_pointers(group.stream())))
}
