//! The repository's files, with and without git: an unpacked archive has no `.git`, and git reads no clone of another
//! owner.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::root;
use crate::workbench::{Workbench, finish};

/// Returns the names, below the root, of the files that no `.gitignore` names.
pub(super) fn all() -> Vec<String> {
    below(root())
}

fn below(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    walk(root, "", &mut Vec::new(), &mut names);
    names.sort();
    names
}

/// Returns the names with one of these endings.
pub(super) fn ending(endings: &[&str]) -> Vec<String> {
    let mut names = all();
    names.retain(|name| Path::new(name).extension().is_some_and(|own| endings.iter().any(|one| own == *one)));
    names
}

/// Adds the files below the folder `folder/` of `root`; `ignored` has the lines of each `.gitignore` on the way, with the
/// folder of each.
fn walk(root: &Path, folder: &str, ignored: &mut Vec<(String, String)>, names: &mut Vec<String>) {
    let lines = fs::read_to_string(root.join(folder).join(".gitignore")).unwrap_or_default();
    ignored.push((folder.to_owned(), lines));
    for entry in fs::read_dir(root.join(folder)).expect("a folder of the repository can be read") {
        let entry = entry.expect("it can be read");
        let own = entry.file_name().into_string().expect("the repository's names are text");
        let name = format!("{folder}{own}");
        // A file in a work tree of git's, otherwise a folder.
        if own == ".git" || ignored.iter().any(|(folder, lines)| is_ignored(lines, &name[folder.len()..])) {
            continue;
        }
        match entry.file_type().expect("it is there").is_dir() {
            true => walk(root, &format!("{name}/"), ignored, names),
            false => names.push(name),
        }
    }
    ignored.pop();
}

/// Returns whether a line of a `.gitignore` names the file, by its path from there. A line `/PATH` names that path, and
/// any other line the last name.
fn is_ignored(lines: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).any(|line| {
        match line.strip_prefix('/') {
            Some(line) => fits(line.as_bytes(), path.as_bytes()),
            None => fits(line.as_bytes(), name.as_bytes()),
        }
    })
}

/// Returns whether a name is of this form, in which `*` stands for any bytes but a slash, and `?` for one.
fn fits(form: &[u8], name: &[u8]) -> bool {
    match (form, name) {
        ([b'*', rest @ ..], _) if fits(rest, name) => true,
        ([b'*', ..], [byte, left @ ..]) => *byte != b'/' && fits(form, left),
        ([b'?', rest @ ..], [byte, left @ ..]) => *byte != b'/' && fits(rest, left),
        ([one, rest @ ..], [byte, left @ ..]) => one == byte && fits(rest, left),
        (form, name) => form.is_empty() && name.is_empty(),
    }
}

/// Copies the files into a folder.
pub(super) fn copy(to: &Path) {
    for name in all() {
        let (from, to) = (root().join(&name), to.join(&name));
        fs::create_dir_all(to.parent().expect("it is in a folder")).expect("a folder can be made");
        match fs::read_link(&from) {
            Ok(target) => std::os::unix::fs::symlink(target, to).expect("a link can be made"),
            Err(_) => drop(fs::copy(&from, &to).unwrap_or_else(|error| panic!("{name}: {error}"))),
        }
    }
}

/// Returns git's output, or its refusal.
fn git(folder: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let done = match Command::new("git").arg("--version").output() {
        Ok(_) => finish(Command::new("git").arg("-C").arg(folder).args(arguments)),
        Err(error) => return Err(format!("git: {error}")),
    };
    match done.code {
        0 => Ok(done.text().split_terminator('\0').map(str::to_owned).collect()),
        _ => Err(done.err.trim().to_owned()),
    }
}

#[test]
fn git_knows_the_same_files() {
    // New files count, too: a change is tested before it is committed.
    let listed =
        git(root(), &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    match listed {
        Ok(mut known) => {
            known.retain(|name| root().join(name).symlink_metadata().is_ok());
            known.sort();
            assert_eq!(all(), known);
        }
        Err(why) => println!("skipped: {why}"),
    }
}

#[test]
fn a_copy_without_git_has_the_same_files() {
    let bench = Workbench::new();
    let there = bench.path("there");
    copy(&there);
    assert!(git(&there, &["ls-files", "-z"]).is_err(), "{} is below a clone", there.display());
    assert_eq!(below(&there), all());
    assert!(!there.join("target").exists());
}

/// cargo names the variable after the program, and shells such as dash drop variables with a hyphen: a compiler that a
/// shell's script runs would miss it.
#[test]
fn no_test_names_a_program_by_a_variable_that_shells_drop() {
    const VARIABLE: &str = concat!("CARGO_BIN", "_EXE_");
    for name in ending(&["rs"]) {
        let text = fs::read_to_string(root().join(&name)).expect("it can be read");
        let programs = text.split(VARIABLE).skip(1).filter_map(|rest| rest.split('"').next());
        let wrong: Vec<&str> = programs.filter(|program| program.contains('-')).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}
