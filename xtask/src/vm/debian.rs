//! Contents of the virtual machines: packages of the distribution.

use std::path::PathBuf;

use crate::fetch::debs::{Outcome, Store};
use crate::process::Failed;

/// Packages of a machine, besides their dependencies. Debian 12's names.
const USERLAND: [&str; 10] = [
    "busybox-static",
    "dash",
    "iproute2",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
    "libucx0",
    "ucx-utils",
    "libgcc-s1",
    "libstdc++6",
];

/// Packages that depend on the newest kernel of a series; any of them will do.
const KERNELS: [&str; 3] = ["linux-image-amd64", "linux-image-6.1-amd64", "linux-image-6.12-amd64"];

/// A kernel, unpacked.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its series: `6.1`.
    pub(super) series: String,
    /// Its release: `6.1.0-56-amd64`.
    pub(super) release: String,
    /// Its package's files.
    pub(super) root: PathBuf,
}

impl Store<'_> {
    /// The root file system of the machines; or the reason why there is none.
    ///
    /// # Errors
    /// When interrupted, or a package cannot be unpacked.
    pub(super) fn userland(&self) -> Result<Outcome<PathBuf>, Failed> {
        let arguments = self.with_dependencies(&USERLAND)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.unpacked("userland", &[&arguments])
    }

    /// The newest kernel of a series (`6.1`); or the reason why there is none.
    ///
    /// # Errors
    /// When interrupted, or a package cannot be unpacked.
    pub(super) fn kernel(&self, series: &str) -> Result<Outcome<Kernel>, Failed> {
        let depends = self.depends(&KERNELS)?;
        let Some(package) = kernel_of(series, &depends) else {
            let names = KERNELS.join(" nor ");
            return Ok(Outcome::Missing(format!(
                "apt knows no kernel {series}: neither {names} depends on one (apt-get update may help, as root)"
            )));
        };
        let root = match self.unpacked(&format!("kernel-{series}"), &[&["download", package]])? {
            Outcome::Here(root) => root,
            Outcome::Missing(why) => return Ok(Outcome::Missing(why)),
        };
        let release = package.trim_start_matches("linux-image-").to_owned();
        Ok(Outcome::Here(Kernel { series: series.to_owned(), release, root }))
    }
}

impl Kernel {
    /// The kernel's file, still packed.
    pub(super) fn file(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }
}

/// The kernel of a series on which one of the packages in the output of `apt-cache depends` depends.
pub(super) fn kernel_of<'o>(series: &str, output: &'o str) -> Option<&'o str> {
    let begins = format!("linux-image-{series}.");
    output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with(&begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_series_matches_no_series_with_a_longer_number() {
        let output = "linux-image-amd64\n  Depends: linux-image-6.12.117+deb12-amd64\nx\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(kernel_of("6.1", output), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(kernel_of("6.12", output), Some("linux-image-6.12.117+deb12-amd64"));
        assert_eq!(kernel_of("6.18", output), None);
    }
}
