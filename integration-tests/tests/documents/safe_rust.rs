//! Each public trait, and each safe public item with a raw pointer, has its line in `docs/design/handshake.md`.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

/// The source of the published crates, without the bindings to C that are made by a program.
fn published() -> Vec<String> {
    let mut sources = Vec::new();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members = [")).unwrap();
    let mut crates = 0;
    for member in members.split('"').skip(1).step_by(2) {
        let folder = root().join(member);
        let own = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if own.contains("\npublish = false") || !folder.join("src/lib.rs").exists() {
            continue;
        }
        crates += 1;
        files(&folder.join("src"), &mut sources);
    }
    assert!(crates > 8, "{members}");
    sources.retain(|path| path.file_name().is_none_or(|name| name != "bindings.rs"));
    sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The name at the start of `text`.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn the_handshake_page_lists_each_public_trait_as_safe_or_unsafe() {
    let page = fs::read_to_string(root().join("docs/design/handshake.md")).unwrap();
    let mut missing = Vec::new();
    let mut found = 0;
    for source in published() {
        for line in source.lines().map(str::trim_start) {
            let (is_unsafe, rest) =
                match (line.strip_prefix("pub trait "), line.strip_prefix("pub unsafe trait ")) {
                    (Some(rest), _) => (false, rest),
                    (_, Some(rest)) => (true, rest),
                    _ => continue,
                };
            let name = name(rest);
            // The trait is in a private module, so that other crates cannot implement it.
            if name == "Sealed" {
                continue;
            }
            found += 1;
            let row = format!("| `{name}` | {} |", if is_unsafe { "unsafe" } else { "safe" });
            if !page.contains(&row) {
                missing.push(row);
            }
        }
    }
    assert!(found >= 18, "{found} traits");
    assert_eq!(missing, [""; 0], "docs/design/handshake.md lacks these rows");
}

#[test]
fn each_safe_function_and_public_field_with_a_raw_pointer_is_judged() {
    let page = fs::read_to_string(root().join("docs/design/handshake.md")).unwrap();
    let mut missing = Vec::new();
    let mut found = 0;
    for source in published() {
        let lines: Vec<&str> = source.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(rest) = line.trim_start().strip_prefix("pub ") else { continue };
            let rest = rest.strip_prefix("const ").unwrap_or(rest);
            let (name, item) = match rest.strip_prefix("fn ") {
                Some(rest) => {
                    let end = (at..lines.len()).find(|line| lines[*line].ends_with(['{', ';']));
                    (name(rest), lines[at..=end.unwrap_or(at)].join(" "))
                }
                // Unsafe items list their conditions, which a lint requires.
                None if rest.starts_with("unsafe ") => continue,
                None if rest.starts_with(|c: char| c.is_lowercase()) && rest.contains(": ") => {
                    (name(rest), rest.to_owned())
                }
                None => continue,
            };
            if !["*const ", "*mut ", "NonNull<", "RawFd"].iter().any(|pointer| item.contains(pointer)) {
                continue;
            }
            found += 1;
            if !page.contains(&format!("::{name}`")) {
                missing.push(item.trim().to_owned());
            }
        }
    }
    assert!(found > 10, "{found} items");
    assert_eq!(missing, [""; 0], "docs/design/handshake.md does not judge these");
}
