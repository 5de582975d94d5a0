//! The exports of `libfarjump.so` and their versions.

use std::collections::BTreeSet;
use std::fs;

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, SymbolIndex};

use crate::installation::prefix;
use crate::programs::Linkage;

/// Returns the names that the library exports, each with its version.
fn exported() -> Vec<(String, String)> {
    let data = fs::read(prefix().join("lib/libfarjump.so")).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*data).unwrap();
    let symbols = sections.symbols(endian, &*data, object::elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &*data).unwrap().expect("it has versions");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut exported = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) || symbol.is_local() || index == SymbolIndex(0) {
            continue;
        }
        let number = versions.version_index(endian, index);
        let name = text(symbol.name(endian, symbols.strings()).unwrap());
        let version = versions.version(number.index()).unwrap().map(|version| text(version.name()));
        exported.push((name, version.unwrap_or_default()));
    }
    exported
}

/// Returns the functions that a header of the prefix declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(prefix().join("include").join(header)).unwrap();
    let mut names = BTreeSet::new();
    let mut in_comment = false;
    for line in text.lines() {
        in_comment |= line.trim_start().starts_with("/*");
        if !in_comment
            && !line.starts_with("typedef")
            && !line.starts_with('#')
            && let Some((before, _)) = line.split_once('(')
            && let Some(name) = before.rsplit([' ', '*']).next()
            && name.starts_with("farjump_")
        {
            names.insert(name.to_owned());
        }
        in_comment &= !line.contains("*/");
    }
    names
}

#[test]
fn the_library_exports_exactly_the_declared_functions_each_with_a_version() {
    if !Linkage::Shared.is_open() {
        return;
    }
    let exported = exported();
    let names: BTreeSet<_> = exported.iter().map(|(name, _)| name.clone()).collect();
    let declared = declared("farjump.h");
    assert!(declared.len() > 100, "{} functions in farjump.h", declared.len());
    let missing: Vec<_> = declared.difference(&names).collect();
    assert!(missing.is_empty(), "declared and not exported: {missing:?}");
    let headers: String = fs::read_dir(prefix().join("include"))
        .unwrap()
        .map(|header| fs::read_to_string(header.unwrap().path()).unwrap())
        .collect();
    let words: BTreeSet<_> =
        headers.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    for (name, version) in &exported {
        // The node itself is a symbol of its own name.
        let own = words.contains(name.as_str()) || name == version;
        assert!(own, "{name} is exported, and no header has it");
        assert_eq!(version, "FARJUMP_0.1", "{name}");
    }
}

#[test]
fn no_function_has_the_name_of_a_service_that_injected_code_imports() {
    if !Linkage::Shared.is_open() {
        return;
    }
    for (name, _) in exported() {
        assert!(
            !["farjump_reply", "farjump_forward", "farjump_panic", "farjump_object"].contains(&name.as_str()),
            "{name}"
        );
    }
}
