//! `#[ifunc]`: the routines of a function. This reads the function's parameters; `farjump_ifunc::__ifunc!` makes
//! the routines.

use proc_macro::{Delimiter, Ident, Spacing, Span, TokenStream, TokenTree};

use crate::tokens::{Refusal, at_commas, code, group, head, is_punct, is_word};

/// Returns the routines of the function `item`.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Refusal> {
    let settings = Settings::read(arguments)?;
    let function = Function::read(item)?;
    let name = settings.name.clone().unwrap_or_else(|| function.name.to_string());
    let is_plain_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_plain_name || name.starts_with(|first: char| first.is_ascii_digit()) {
        let text = format!("`{name}` cannot be the name of an ifunc: use ASCII letters, digits and _");
        return Err(Refusal::new(settings.name_span.unwrap_or_else(|| function.name.span()), text));
    }
    let mut fields = TokenStream::new();
    field(&mut fields, "name", code(&format!("{name:?}")));
    field(&mut fields, "signature", code(&format!("{:?}", function.written)));
    field(&mut fields, "main", TokenTree::Ident(function.name).into());
    let [payload, target] = function.parameters;
    optional(&mut fields, "payload", payload);
    optional(&mut fields, "target", target);
    optional(&mut fields, "returns", function.returns);
    optional(&mut fields, "max_size", settings.max_size);
    optional(&mut fields, "init", settings.init);
    optional(&mut fields, "payload_align", settings.payload_align);
    let mut out = code("::farjump_ifunc::__ifunc!");
    out.extend([group(Delimiter::Brace, fields)]);
    Ok(out)
}

/// Appends `NAME [VALUE]`.
fn field(fields: &mut TokenStream, name: &str, value: TokenStream) {
    fields.extend([TokenTree::Ident(Ident::new(name, Span::call_site())), group(Delimiter::Bracket, value)]);
}

fn optional(fields: &mut TokenStream, name: &str, value: Option<TokenStream>) {
    if let Some(value) = value {
        field(fields, name, value);
    }
}

/// A function that can be an ifunc.
struct Function {
    name: Ident,
    /// Source text from `fn` to the body, for readers.
    written: String,
    /// Types of the payload and of the target's arguments.
    parameters: [Option<TokenStream>; 2],
    returns: Option<TokenStream>,
}

impl Function {
    fn read(item: TokenStream) -> Result<Function, Refusal> {
        let mut rest = head(item).rest;
        let span = rest.peek().map_or_else(Span::call_site, TokenTree::span);
        loop {
            match rest.next() {
                Some(word) if is_word(&word, "fn") => break,
                Some(word) if is_word(&word, "const") => {}
                Some(word) if ["unsafe", "async", "extern"].iter().any(|other| is_word(&word, other)) => {
                    let text = format!(
                        "an ifunc is a plain safe `fn`, not `{word} fn`: unsafe code goes into a block inside it"
                    );
                    return Err(Refusal::new(word.span(), text));
                }
                _ => return Err(Refusal::new(span, "#[ifunc] is for a function, and this is none")),
            }
        }
        let Some(TokenTree::Ident(name)) = rest.next() else {
            return Err(Refusal::new(span, "a function has a name"));
        };
        let parameters = match rest.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => group,
            other => {
                let text = "an ifunc has no type or lifetime parameters: it is one function, and lifetimes can be left out";
                return Err(Refusal::new(other.map_or(span, |other| other.span()), text));
            }
        };
        let mut written = format!("fn {name}{parameters}");
        let mut rest: Vec<TokenTree> = rest.collect();
        if rest.pop().is_none_or(
            |body| !matches!(&body, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace),
        ) {
            return Err(Refusal::new(
                name.span(),
                "an ifunc has a body: use #[imports] for a function of the target's",
            ));
        }
        if let Some(clause) = rest.iter().find(|word| is_word(word, "where")) {
            return Err(Refusal::new(
                clause.span(),
                "an ifunc has no type parameters, and so no conditions on them",
            ));
        }
        let returns = (!rest.is_empty()).then(|| rest.into_iter().skip(2).collect::<TokenStream>());
        if let Some(returns) = &returns {
            written.push_str(&format!(" -> {returns}"));
        }
        let mut types =
            at_commas(parameters.stream()).into_iter().map(type_of).collect::<Result<Vec<_>, _>>()?;
        if let Some((_, third)) = types.get(2) {
            let text =
                "an ifunc takes the payload, and then the target's arguments: it has at most two parameters";
            return Err(Refusal::new(*third, text));
        }
        let mut next = || (!types.is_empty()).then(|| types.remove(0).0);
        let parameters = [next(), next()];
        let written = written.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Function { name, written, parameters, returns })
    }
}

/// Returns the type of a parameter, and its span.
fn type_of(parameter: Vec<TokenTree>) -> Result<(TokenStream, Span), Refusal> {
    let span = parameter.first().map_or_else(Span::call_site, TokenTree::span);
    let mut in_path = false;
    for (index, token) in parameter.iter().enumerate() {
        let TokenTree::Punct(punct) = token else {
            in_path = false;
            continue;
        };
        let colon = punct.as_char() == ':';
        if colon && !in_path && punct.spacing() == Spacing::Alone {
            return Ok((parameter[index + 1..].iter().cloned().collect(), span));
        }
        in_path = colon && !in_path;
    }
    Err(Refusal::new(span, "an ifunc is a function of its own, without `self`"))
}

/// The arguments of the attribute.
#[derive(Default)]
struct Settings {
    name: Option<String>,
    name_span: Option<Span>,
    max_size: Option<TokenStream>,
    init: Option<TokenStream>,
    payload_align: Option<TokenStream>,
}

const ALLOWED: &str =
    "#[ifunc] takes name = \"NAME\", payload(max_size = FUNCTION, init = FUNCTION) and payload_align = BYTES";

impl Settings {
    fn read(arguments: TokenStream) -> Result<Settings, Refusal> {
        let mut settings = Settings::default();
        for argument in at_commas(arguments) {
            let Some(word) = argument.first() else { continue };
            match (word.to_string().as_str(), &argument[1..]) {
                ("payload", [TokenTree::Group(group)]) if group.delimiter() == Delimiter::Parenthesis => {
                    settings.read_payload(word.span(), group.stream())?;
                }
                ("name", [equals, value]) if is_punct(equals, '=') => {
                    let text = value.to_string();
                    let name = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                    let name = name.ok_or_else(|| Refusal::new(value.span(), "write name = \"NAME\""))?;
                    (settings.name, settings.name_span) = (Some(name.to_owned()), Some(value.span()));
                }
                ("payload_align", [equals, value @ ..]) if is_punct(equals, '=') && !value.is_empty() => {
                    settings.payload_align = Some(value.iter().cloned().collect());
                }
                _ => return Err(Refusal::new(word.span(), ALLOWED)),
            }
        }
        Ok(settings)
    }

    fn read_payload(&mut self, span: Span, arguments: TokenStream) -> Result<(), Refusal> {
        for argument in at_commas(arguments) {
            let [word, equals, path @ ..] = &argument[..] else { return Err(Refusal::new(span, ALLOWED)) };
            let path = Some(path.iter().cloned().collect());
            match word.to_string().as_str() {
                "max_size" if is_punct(equals, '=') => self.max_size = path,
                "init" if is_punct(equals, '=') => self.init = path,
                _ => return Err(Refusal::new(word.span(), ALLOWED)),
            }
        }
        if self.max_size.is_none() || self.init.is_none() {
            return Err(Refusal::new(
                span,
                "a payload has two routines: payload(max_size = FUNCTION, init = FUNCTION)",
            ));
        }
        Ok(())
    }
}
