//! Finds files of a crate that use each other in a circle: none of them can be read, or moved, without the others.
//!
//! A module may use those above it, as it is a part of them: they have the types of its `impl` blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::process::{Failed, Interrupt};
use crate::step::Verdict;
use crate::workspace::{root, tracked_files};

/// A module's path within its crate.
type Module = Vec<String>;

/// Reads every crate; fails if there is a circle.
pub(crate) fn check(interrupt: &Interrupt) -> Verdict {
    let files = tracked_files(&["*.rs"], interrupt)?;
    let crates = crates(files.iter().map(String::as_str));
    let mut circles = Vec::new();
    for files in crates.values() {
        circles.extend(circles_of(files).map_err(Failed::Because)?);
    }
    say!("{} crates", crates.len());
    verdict(&circles)
}

fn verdict(circles: &[Vec<String>]) -> Verdict {
    let faults = circles.iter().map(|circle| {
        format!(
            "these files use each other in a circle: {}; put the types into the file below, and the functions into \
             the one above",
            circle.join(", ")
        )
    });
    match circles.is_empty() {
        true => Ok(()),
        false => Err(Failed::Because(faults.collect::<Vec<_>>().join("\n"))),
    }
}

/// The source files of each crate by module, keyed by the folder of its root.
fn crates<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<PathBuf, BTreeMap<Module, PathBuf>> {
    let names: Vec<&Path> = names.map(Path::new).collect();
    let is_root = |name: &Path| {
        let folder = name.parent().unwrap_or(Path::new(""));
        let in_src = folder.file_name().is_some_and(|last| last == "src");
        let in_bin = folder.parent().is_some_and(|above| above.ends_with("src/bin"));
        match name.file_name().and_then(|file| file.to_str()) {
            Some("lib.rs") => in_src,
            Some("main.rs") => in_src || in_bin,
            _ => false,
        }
    };
    let roots: Vec<&Path> =
        names.iter().filter(|name| is_root(name)).filter_map(|name| name.parent()).collect();
    let mut crates: BTreeMap<PathBuf, BTreeMap<Module, PathBuf>> = BTreeMap::new();
    for name in names {
        let deepest = roots
            .iter()
            .filter(|folder| name.starts_with(folder))
            .max_by_key(|folder| folder.as_os_str().len());
        let Some(folder) = deepest else { continue };
        let Ok(inside) = name.strip_prefix(folder) else { continue };
        let mut module: Module = inside
            .with_extension("")
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
        crates.entry(folder.to_path_buf()).or_default().insert(module, root().join(name));
    }
    crates
}

/// The circles of a crate, each as the names of its files.
fn circles_of(files: &BTreeMap<Module, PathBuf>) -> Result<Vec<Vec<String>>, String> {
    let mut uses: BTreeMap<&Module, Vec<&Module>> = BTreeMap::new();
    for (module, path) in files {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        uses.insert(module, used_by(module, &file, files));
    }
    let reached: BTreeMap<_, _> = uses.keys().map(|module| (*module, reached_from(module, &uses))).collect();
    let name = |module: &&Module| {
        let path = &files[*module];
        path.strip_prefix(root()).unwrap_or(path).display().to_string()
    };
    let circle = |module: &&Module| {
        let circle = reached[*module].iter().filter(|other| reached[**other].contains(*module));
        let mut names: Vec<String> = circle.map(name).collect();
        names.sort();
        names
    };
    let circles: BTreeSet<_> = uses.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    Ok(circles.into_iter().collect())
}

/// The modules that `module` uses, directly or through others.
fn reached_from<'a>(
    module: &'a Module,
    uses: &BTreeMap<&'a Module, Vec<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        let new = uses.get(module).into_iter().flatten().filter(|used| reached.insert(**used));
        next.extend(new.copied());
    }
    reached
}

/// The modules that `module`, whose file is `file`, uses. The modules above it are not among them, as it is a part of
/// those. Paths inside macros do not count.
fn used_by<'a>(module: &Module, file: &syn::File, files: &'a BTreeMap<Module, PathBuf>) -> Vec<&'a Module> {
    let mut paths =
        Paths { module: module.clone(), found: Vec::new(), imported: BTreeMap::new(), said: Vec::new() };
    paths.visit_file(file);
    for path in std::mem::take(&mut paths.said) {
        // `checks::run` after `use crate::checks`.
        let imported = paths.imported.get(&path[0]);
        paths.found.extend(imported.map(|from| [from, &path[1..]].concat()));
    }
    let resolve = |path: &Module| {
        let prefixes = (0..=path.len()).rev().map(|len| &path[..len]);
        prefixes.filter_map(|prefix| files.get_key_value(prefix)).map(|(known, _)| known).next()
    };
    let used = paths.found.iter().filter_map(resolve);
    used.filter(|used| !module.starts_with(used)).collect()
}

/// Collects the paths of a file, from the root of its crate on.
struct Paths {
    /// The visited module; inline modules included.
    module: Module,
    found: Vec<Module>,
    /// The paths of imported names.
    imported: BTreeMap<String, Module>,
    /// Paths that begin with any other name.
    said: Vec<Module>,
}

impl Paths {
    fn find(&mut self, path: &[String]) {
        let mut from = self.module.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => {
                from.clear();
                rest = &rest[1..];
            }
            Some("self") => rest = &rest[1..],
            // A child module, or a name from elsewhere, which resolves to the module itself.
            _ => {}
        }
        while rest.first().is_some_and(|first| first == "super") {
            from.pop();
            rest = &rest[1..];
        }
        from.extend_from_slice(rest);
        self.found.push(from);
    }

    fn find_tree(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.find_tree(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.find_tree(prefix, tree)),
            UseTree::Name(name) => self.find_named(prefix, &name.ident),
            UseTree::Rename(name) => self.find_named(prefix, &name.ident),
            UseTree::Glob(_) => self.find(prefix),
        }
    }

    fn find_named(&mut self, prefix: &[String], name: &syn::Ident) {
        let name = name.to_string();
        match name == "self" {
            true => self.find(prefix),
            false => self.find(&[prefix, &[name]].concat()),
        }
        let imported = self.found.last().and_then(|path| Some((path.last()?.clone(), path.clone())));
        self.imported.extend(imported);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.find_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.find(&segments);
            self.said.push(segments);
        }
        visit::visit_path(self, path);
    }
}

/// Returns whether an attribute leaves the item out of everything but tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| {
            let condition = list.tokens.to_string();
            condition.contains("test") && !condition.contains("not")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of a crate with these files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            names.push(path.to_str().unwrap().to_owned());
        }
        let crates = crates(names.iter().map(String::as_str));
        assert_eq!(crates.len(), 1);
        let root = format!("{}/src/", folder.path().display());
        let circles = crates.values().flat_map(|files| circles_of(files).unwrap());
        circles.map(|names| names.iter().map(|name| name.replace(&root, "")).collect()).collect()
    }

    #[test]
    fn a_circle_through_two_folders_is_found_by_uses_and_by_paths() {
        let found = circles(&[
            ("lib.rs", "mod one; mod other;"),
            ("one/mod.rs", "mod part;"),
            ("one/part.rs", "use crate::other::{Thing, deep::Deep};"),
            ("other/mod.rs", "pub mod deep; pub struct Thing;"),
            ("other/deep.rs", "use crate::one; fn act() { one::part::act() }"),
        ]);
        assert_eq!(found, [["one/part.rs", "other/deep.rs"]]);
    }

    #[test]
    fn files_of_one_folder_that_use_each_other_make_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod first; mod second; mod third; use first::First;"),
            ("first.rs", "use super::second::Second; pub struct First;"),
            ("second.rs", "use super::third::Third; pub struct Second;"),
            ("third.rs", "fn act() { crate::first::act() }"),
        ]);
        assert_eq!(found, [["first.rs", "second.rs", "third.rs"]]);
    }

    #[test]
    fn a_module_and_its_parts_a_line_and_tests_make_no_circle() {
        let found = circles(&[
            ("lib.rs", "mod one; mod other; use one::First;"),
            (
                "one/mod.rs",
                "mod first; mod second; pub use first::First; struct One; fn act(one: One) { one.act() }",
            ),
            ("one/first.rs", "pub struct First;"),
            ("one/second.rs", "use super::{One, first::First}; impl One { fn act(self) {} }"),
            ("other/mod.rs", "use crate::one::First; pub struct Thing;"),
            ("one/third.rs", "#[cfg(test)] mod tests { use crate::other::Thing; }"),
        ]);
        assert_eq!(found, Vec::<Vec<String>>::new());
    }

    #[test]
    fn every_circle_is_a_fault_that_names_its_files() {
        let circles = [["a.rs", "b.rs"], ["c.rs", "d.rs"]].map(|circle| circle.map(str::to_owned).to_vec());
        let Err(Failed::Because(why)) = verdict(&circles) else { panic!("circles pass") };
        assert!(
            why.contains("in a circle: a.rs, b.rs;") && why.contains("in a circle: c.rs, d.rs;"),
            "{why}"
        );
        assert!(verdict(&[]).is_ok());
    }
}
