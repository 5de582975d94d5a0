//! `cargo xtask wheel`: the wheel of the Python package, built by maturin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Failed, Interrupt, Run};
use crate::test_report::last;
use crate::wheels::Set;
use crate::workspace::{Workspace, root};

/// Limit for a release build on a slow or busy machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// maturin, for 64-bit x86.
const MATURIN: Set<'_> = Set {
    what: "maturin 1.16.0",
    name: "maturin/1",
    pinned: &[("maturin", "1.16.0", "837db2f4d93d4899c3ac393fb3cc9eebf35b6002336e5d574f4a4fb6c49fe283")],
};

/// Options of `cargo xtask wheel`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The folder for the wheel. It is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the chore.
///
/// # Errors
/// When interrupted, or maturin is not available or fails.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let wheel = built(&options.out, &[], interrupt)?.map_err(Failed::Because)?;
    let length = fs::metadata(&wheel).map_err(failed(&wheel))?.len();
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    println!("{name}: {} KB, for {}", length.div_ceil(1000), platform(&name));
    Ok(true)
}

/// Builds the wheel into `out`, with these settings of cargo's, and returns its path. `Err` inside says why maturin is
/// not available.
///
/// # Errors
/// When interrupted, or maturin fails.
pub(super) fn built(
    out: &Path,
    settings: &[(&str, &str)],
    interrupt: &Interrupt,
) -> Result<Result<PathBuf, String>, Failed> {
    let maturin = match MATURIN.folder(|_| Ok(()), interrupt)? {
        Ok(folder) => folder.join("bin/maturin"),
        Err(why) => return Ok(Err(why)),
    };
    let folder = Workspace::load(false, interrupt)?.target().join("python");
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    // A folder of its own shows the name of what was built.
    let made = tempfile::tempdir_in(&folder).map_err(failed(&folder))?;
    let run = Run::new(maturin, interrupt).directory(root()).limit(LIMIT);
    let run = run.args(["build", "--release", "--locked", "--manifest-path", "python/Cargo.toml", "--out"]);
    let run = settings.iter().fold(run, |run, (name, value)| run.env(name, value));
    let ended = run.args([made.path()]).env("CARGO_TERM_QUIET", "true").run()?;
    if !ended.status.success() {
        let said = last(&ended.output).join("\n    ");
        return Err(Failed::Because(format!("maturin failed\n    {said}")));
    }
    let mut entries = fs::read_dir(made.path()).map_err(failed(made.path()))?;
    let wheel = entries.find_map(|entry| entry.ok().map(|entry| entry.path()));
    let wheel = wheel.ok_or_else(|| Failed::Because("maturin made no wheel".to_owned()))?;
    fs::create_dir_all(out).map_err(failed(out))?;
    let placed = out.join(wheel.file_name().unwrap_or_default());
    fs::copy(&wheel, &placed).map_err(failed(&placed))?;
    Ok(Ok(placed))
}

/// The platform in a wheel's name: `manylinux_2_34_x86_64`.
fn platform(name: &str) -> &str {
    name.trim_end_matches(".whl").rsplit('-').next().unwrap_or_default()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Failed {
    move |error| Failed::Because(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_wheels_name_is_its_platform() {
        assert_eq!(platform("farjump-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl"), "manylinux_2_34_x86_64");
    }
}
