//! The files that the dynamic linker would open for a library's needs.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::object::Object;

/// The folders of one object's search, in the dynamic linker's order (ld.so(8)), up to those of the system.
#[derive(Clone, Debug, Default)]
pub(super) struct Folders {
    /// The folders of the RPATHs of the object and of the objects that need it, unless a RUNPATH replaces them.
    inherited: Vec<PathBuf>,
    own: Vec<PathBuf>,
}

impl Folders {
    /// The search of `object`, whose folder is `origin`. An object with the search `parent` needs it.
    pub(super) fn of(object: &Object, origin: Option<&Path>, parent: Option<&Folders>) -> Folders {
        let split = |list: Option<String>| -> Vec<PathBuf> {
            let list = list.unwrap_or_default();
            list.split(':').filter_map(|folder| expand(folder, origin)).map(|path| path_of(&path)).collect()
        };
        let mut inherited = split(object.rpath());
        let own = split(object.runpath());
        inherited.extend(parent.into_iter().flat_map(|parent| parent.inherited.iter().cloned()));
        Folders { inherited, own }
    }

    /// The paths at which the dynamic linker would search for `name` before the system's folders; `None` if it finds
    /// the name in `LD_LIBRARY_PATH` first.
    pub(super) fn candidates(&self, name: &str) -> Option<Vec<PathBuf>> {
        // A RUNPATH of the object ends the search by RPATHs.
        if self.own.is_empty() {
            return Some(self.inherited.iter().map(|folder| folder.join(name)).collect());
        }
        let environment = std::env::var_os("LD_LIBRARY_PATH").filter(|list| !list.is_empty());
        let environment = environment.unwrap_or_default();
        let folders = environment.as_bytes().split(|byte| matches!(byte, b':' | b';'));
        if !environment.is_empty() && folders.map(path_of).any(|folder| folder.join(name).is_file()) {
            return None;
        }
        Some(self.own.iter().map(|folder| folder.join(name)).collect())
    }
}

/// A folder of a list; an empty entry is the current folder.
fn path_of(bytes: &[u8]) -> PathBuf {
    match bytes {
        [] => PathBuf::from("."),
        bytes => PathBuf::from(OsStr::from_bytes(bytes)),
    }
}

/// Replaces `$ORIGIN` by `origin`; `None` if that is unknown, or for a list with other tokens, which only the
/// dynamic linker knows.
pub(super) fn expand(text: &str, origin: Option<&Path>) -> Option<Vec<u8>> {
    let replaced = replace_origin(text, origin).unwrap_or_else(|| text.as_bytes().to_vec());
    (!replaced.contains(&b'$')).then_some(replaced)
}

/// `text` with the folder `origin` for each `$ORIGIN`; `None` if there is none, or no folder. Other tokens
/// stay.
pub(super) fn replace_origin(text: &str, origin: Option<&Path>) -> Option<Vec<u8>> {
    let origin = origin?.as_os_str().as_bytes();
    let parts: Vec<&str> = text.split("${ORIGIN}").flat_map(|part| split_token(part)).collect();
    if parts.len() < 2 {
        return None;
    }
    Some(parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>().join(origin))
}

/// Splits at each `$ORIGIN` at which the token ends.
fn split_token(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut from) = (Vec::new(), 0, 0);
    while let Some(at) = text[from..].find("$ORIGIN").map(|at| from + at) {
        from = at + "$ORIGIN".len();
        if !text[from..].starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_') {
            parts.push(&text[start..at]);
            start = from;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The path with which the dynamic linker would name a file: from the root, without following links.
pub(super) fn absolute(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    // The linker takes a C string.
    (!path.clone().into_os_string().into_vec().contains(&0)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_is_replaced_wherever_it_is_named_and_nothing_else() {
        let origin = Some(Path::new("/opt/kv"));
        for (text, expected) in [
            ("$ORIGIN", Some("/opt/kv")),
            ("${ORIGIN}/../lib:$ORIGIN/x", Some("/opt/kv/../lib:/opt/kv/x")),
            ("$ORIGINAL:$ORIGIN", Some("$ORIGINAL:/opt/kv")),
            ("/lib/$LIB", None),
            ("", None),
        ] {
            let replaced = replace_origin(text, origin);
            assert_eq!(replaced.as_deref(), expected.map(str::as_bytes), "{text}");
            assert_eq!(replace_origin(text, None), None);
        }
        assert_eq!(expand("$ORIGIN/$LIB", origin), None);
        assert_eq!(expand("/lib", None).as_deref(), Some(&b"/lib"[..]));
    }
}
