//! The documents match the code.

mod datagrams;
mod hex;
mod ifuncs;
mod mistakes;
mod pages;
mod protocol;
mod safe_rust;
mod transports;

use std::path::Path;

#[test]
fn only_the_cli_package_names_a_default_program() {
    // `cargo run` takes the only package of the workspace that names a default program, and none if two name one.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut those = Vec::new();
    for folder in std::fs::read_dir(&root).unwrap() {
        let manifest = folder.unwrap().path().join("Cargo.toml");
        if std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("\ndefault-run = ")) {
            those.push(manifest.parent().and_then(Path::file_name).unwrap().to_owned());
        }
    }
    assert_eq!(those, ["cli"]);
}
