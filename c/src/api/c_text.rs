//! Texts for C.

use std::ffi::CString;

/// Returns a text for C. Leaves out zero bytes, which no text should contain.
pub(crate) fn c_text(text: &str) -> CString {
    let mut bytes = text.as_bytes().to_vec();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}
