//! Consumers that find the library by pkg-config and by CMake.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

use farjump_tools::all_work;

use crate::common::package;
use crate::installation::{ifuncs, prefix};
use crate::programs::{finish, start};

/// Runs a consumer, which has a source and a target in it; `shared` says whether it needs `libfarjump.so`.
fn sums_up(consumer: &Path, shared: bool) {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("t.sock").display());
    let library = ifuncs().join("libsum.so");
    let done = start(consumer, [address.as_ref(), library.as_os_str()], folder.path()).finish().worked();
    assert_eq!(done.text(), format!("120 by farjump {}\n", env!("CARGO_PKG_VERSION")));
    let file = std::fs::read(consumer).unwrap();
    let needed = file.windows(18).any(|bytes| bytes == b"libfarjump.so.0.1\0");
    assert_eq!(needed, shared, "{} by its soname", if shared { "needs it" } else { "does not need it" });
}

/// Returns the words that pkg-config prints, read by a shell: pkg-config quotes blanks and other characters of paths
/// for one. Returns its error if it finds no such package.
pub(crate) fn pkg_config_words(args: &[&str]) -> Result<Vec<OsString>, String> {
    const SPLIT: &str =
        r#"said=$(pkg-config "$@") || exit; eval "set -- $said"; [ $# = 0 ] || printf '%s\0' "$@""#;
    let mut shell = Command::new("sh");
    shell.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["-c", SPLIT, "sh"]).args(args);
    let done = finish(&mut shell);
    if done.code != 0 {
        return Err(done.err);
    }
    let words = done.out.split_inclusive(|byte| *byte == 0).map(|word| &word[..word.len() - 1]);
    Ok(words.map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// Returns pkg-config's flags for farjump.
pub(crate) fn flags(args: &[&str]) -> Vec<OsString> {
    pkg_config_words(&[args, &["farjump"]].concat()).unwrap()
}

#[test]
fn a_consumer_finds_the_library_by_pkg_config() {
    if !all_work(&["pkg-config", "g++"]) {
        return;
    }
    assert_eq!(flags(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let folder = farjump_fixtures::folder();
    let compile = |name: &str, flags: &[OsString]| {
        let consumer = folder.path().join(name);
        let mut command = Command::new("g++");
        command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        command.arg(package().join("tests/consumer/consumer.cpp")).arg("-o").arg(&consumer);
        finish(command.args(flags)).worked();
        consumer
    };
    let mut shared = flags(&["--cflags", "--libs"]);
    shared.push(format!("-Wl,-rpath,{}", prefix().join("lib").display()).into());
    sums_up(&compile("shared", &shared), true);
    let mut alone = flags(&["--cflags", "--libs", "--static"]);
    let place = alone.iter().position(|flag| flag == "-lfarjump").unwrap();
    alone.splice(place..=place, ["-Wl,-Bstatic", "-lfarjump", "-Wl,-Bdynamic"].map(OsString::from));
    sums_up(&compile("static", &alone), false);
}

#[test]
fn a_consumer_finds_the_library_by_cmake() {
    if !all_work(&["cmake", "g++"]) {
        return;
    }
    let folder = farjump_fixtures::folder();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(package().join("tests/consumer")).arg("-B").arg(folder.path());
    finish(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))).worked();
    finish(Command::new("cmake").arg("--build").arg(folder.path())).worked();
    sums_up(&folder.path().join("shared"), true);
    sums_up(&folder.path().join("static"), false);
}
