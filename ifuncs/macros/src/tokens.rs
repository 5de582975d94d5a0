//! Reading and making tokens.

use std::iter::Peekable;

use proc_macro::{
    Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree, token_stream,
};

/// An error at a place of the author's code.
#[derive(Debug)]
pub(crate) struct Refusal {
    span: Span,
    text: String,
}

impl Refusal {
    pub(crate) fn new(span: Span, text: impl Into<String>) -> Refusal {
        Refusal { span, text: text.into() }
    }

    /// A `compile_error!` at the place.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let mut text = TokenTree::Literal(Literal::string(&self.text));
        text.set_span(self.span);
        let mut bang = Punct::new('!', Spacing::Alone);
        bang.set_span(self.span);
        let mut argument = Group::new(Delimiter::Brace, text.into());
        argument.set_span(self.span);
        [
            TokenTree::Ident(Ident::new("compile_error", self.span)),
            TokenTree::Punct(bang),
            TokenTree::Group(argument),
        ]
        .into_iter()
        .collect()
    }
}

/// Refuses arguments of an attribute that takes none.
pub(crate) fn no_arguments(arguments: TokenStream, attribute: &str) -> Result<(), Refusal> {
    match arguments.into_iter().next() {
        Some(first) => Err(Refusal::new(first.span(), format!("#[{attribute}] takes no arguments"))),
        None => Ok(()),
    }
}

/// Rust code that farjump writes itself.
pub(crate) fn code(text: &str) -> TokenStream {
    text.parse()
        .unwrap_or_else(|error| Refusal::new(Span::call_site(), format!("{error}: {text}")).into_tokens())
}

/// `tokens` between delimiters.
pub(crate) fn group(delimiter: Delimiter, tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, tokens))
}

pub(crate) fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

pub(crate) fn is_word(token: &TokenTree, wanted: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word.to_string() == wanted)
}

/// Splits at the commas outside groups and angle brackets. A trailing comma begins no further part.
pub(crate) fn at_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    let (mut depth, mut after_dash) = (0_usize, false);
    for token in tokens {
        if is_punct(&token, ',') && depth == 0 {
            parts.push(Vec::new());
            continue;
        }
        if is_punct(&token, '<') {
            depth += 1;
        } else if is_punct(&token, '>') && !after_dash {
            depth = depth.saturating_sub(1);
        }
        after_dash = is_punct(&token, '-');
        if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// An item, with its attributes and visibility parsed.
pub(crate) struct Head {
    /// The groups of its attributes: `[repr(C)]`.
    pub(crate) attributes: Vec<Group>,
    /// Attributes and visibility, as written.
    pub(crate) written: TokenStream,
    /// The tokens behind them.
    pub(crate) rest: Peekable<token_stream::IntoIter>,
}

/// Reads attributes and visibility.
pub(crate) fn head(item: TokenStream) -> Head {
    let mut rest = item.into_iter().peekable();
    let (mut attributes, mut written) = (Vec::new(), TokenStream::new());
    loop {
        let is_attribute = rest.peek().is_some_and(|token| is_punct(token, '#'));
        let is_visibility = rest.peek().is_some_and(|token| is_word(token, "pub"));
        if !is_attribute && !is_visibility {
            return Head { attributes, written, rest };
        }
        written.extend(rest.next());
        if let Some(TokenTree::Group(group)) = rest.peek()
            && (is_attribute || group.delimiter() == Delimiter::Parenthesis)
        {
            if is_attribute {
                attributes.push(group.clone());
            }
            written.extend(rest.next());
        }
    }
}

impl Head {
    /// The words in the parentheses of each `#[repr(...)]`.
    pub(crate) fn representations(&self) -> Vec<String> {
        let mut words = Vec::new();
        for attribute in &self.attributes {
            let mut tokens = attribute.stream().into_iter();
            if !tokens.next().is_some_and(|first| is_word(&first, "repr")) {
                continue;
            }
            if let Some(TokenTree::Group(group)) = tokens.next() {
                words.extend(group.stream().into_iter().map(|word| word.to_string()));
            }
        }
        words
    }
}

/// A structure without parameters.
pub(crate) struct Structure {
    pub(crate) name: Ident,
    /// The tokens behind the name: the fields, and a semicolon.
    pub(crate) body: Vec<TokenTree>,
}

/// Reads a structure behind its attributes. Messages name `attribute`.
pub(crate) fn structure(
    rest: Peekable<token_stream::IntoIter>,
    attribute: &str,
) -> Result<Structure, Refusal> {
    let mut rest = rest;
    let first = rest.next();
    let span = first.as_ref().map_or_else(Span::call_site, TokenTree::span);
    if !first.is_some_and(|word| is_word(&word, "struct")) {
        return Err(Refusal::new(span, format!("{attribute} is for a struct, and this is none")));
    }
    let Some(TokenTree::Ident(name)) = rest.next() else {
        return Err(Refusal::new(span, "a struct has a name"));
    };
    let body: Vec<TokenTree> = rest.collect();
    if let Some(first) = body.first()
        && (is_punct(first, '<') || is_word(first, "where"))
    {
        let text = format!("{attribute} is for a struct without parameters: write one struct for each type");
        return Err(Refusal::new(first.span(), text));
    }
    Ok(Structure { name, body })
}
