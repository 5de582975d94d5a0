//! `#[target_args]`: the type of `target_args`.

use proc_macro::{TokenStream, TokenTree};

use crate::tokens::{Refusal, code, head, is_punct, structure};

/// Lays the structure out as C does, and implements `TargetArgs`. A unit structure gets a field, because C knows no
/// type without fields.
pub(crate) fn expand(item: TokenStream) -> Result<TokenStream, Refusal> {
    let head = head(item);
    let laid_out = !head.representations().is_empty();
    let mut out = code(if laid_out { "#[allow(dead_code)]" } else { "#[allow(dead_code)] #[repr(C)]" });
    out.extend(head.written);
    let structure = structure(head.rest, "#[target_args]")?;
    let name = structure.name.to_string();
    out.extend(code("struct"));
    out.extend([TokenTree::Ident(structure.name)]);
    match &structure.body[..] {
        [end] if is_punct(end, ';') => out.extend(code("{ _opaque: [u8; 0] }")),
        _ => out.extend(structure.body),
    }
    out.extend(code(&format!(
        "const _: () = {{
            // SAFETY: the attribute is its author's promise that a target passes such a value (its docs).
            unsafe impl ::farjump_ifunc::TargetArgs for {name} {{}}
        }};"
    )));
    Ok(out)
}
