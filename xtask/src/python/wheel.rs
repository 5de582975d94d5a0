//! `cargo xtask wheel`: the wheel of the Python package, built by maturin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::interpreters::{installed, interpreters};
use crate::fetch::wheels::Set;
use crate::package::debug_files::{self, Divider, Kept};
use crate::process::{Failed, Interrupt, Run};
use crate::scratch;
use crate::step::Verdict;
use crate::test::report::last;
use crate::workspace::{Workspace, root};

/// Limit for a release build on a slow or busy machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Limit for reading the wheel, or making a link.
const SHORT: Duration = Duration::from_secs(60);

/// maturin, for 64-bit x86.
const MATURIN: Set<'_> = Set {
    what: "maturin 1.16.0",
    name: "maturin/1",
    pinned: &[("maturin", "1.16.0", "837db2f4d93d4899c3ac393fb3cc9eebf35b6002336e5d574f4a4fb6c49fe283")],
};

/// Zig's linker and its lists of the symbols of each glibc, for 64-bit x86.
const ZIG: Set<'_> = Set {
    what: "Zig 0.17.1",
    name: "ziglang/1",
    pinned: &[("ziglang", "0.17.1", "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54")],
};

/// The oldest glibc that Rust supports.
const OLDEST: &str = "2_17";

/// Prints the newest version of glibc that a wheel's module requires.
const NEWEST_GLIBC: &str = "
import re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    module = next(wheel.read(name) for name in wheel.namelist() if name.endswith('.so'))
versions = re.findall(rb'\\bGLIBC_(\\d+)\\.(\\d+)', module)
print('.'.join(map(str, max(tuple(map(int, version)) for version in versions))))
";

/// Packs a wheel from its folder. The record in it gets the lengths and hashes of the files as they are now.
const PACK: &str = "
import base64, csv, hashlib, pathlib, sys, zipfile
folder, wheel = pathlib.Path(sys.argv[1]), sys.argv[2]
record = next(folder.glob('*.dist-info/RECORD'))
with record.open(newline='') as file:
    rows = list(csv.reader(file))
for row in rows:
    if row[1]:
        data = (folder / row[0]).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        row[1:] = [f'sha256={digest}', len(data)]
with record.open('w', newline='') as file:
    csv.writer(file, lineterminator='\\n').writerows(rows)
with zipfile.ZipFile(wheel, 'w', zipfile.ZIP_DEFLATED) as packed:
    for row in rows:
        packed.write(folder / row[0], row[0])
";

/// Makes a link to a target in the same process, with the installed package.
const TRIED: &str = "
import farjump, sys, threading
with farjump.Target('unix:' + sys.argv[1]) as target:
    serving = threading.Thread(target=target.run)
    serving.start()
    with farjump.Link(target.address) as link:
        link.flush(10)
serving.join()
";

/// The module in a wheel.
const MODULE: &str = "farjump/_native.abi3.so";

/// Options of `cargo xtask wheel`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The folder for the wheel. It is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The oldest glibc that the wheel is for, from 2_17. Zig then links it, which pip installs (100 MB). `system` is
    /// this machine's, without Zig [default: 2_17; without Zig system]
    #[arg(long, value_name = "2_N", value_parser = parse_glibc)]
    manylinux: Option<Glibc>,
}

/// The glibc for which a wheel is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Glibc {
    /// This machine's.
    System,
    /// At least this one: `2_28`.
    From(String),
}

fn parse_glibc(text: &str) -> Result<Glibc, String> {
    if text == "system" {
        return Ok(Glibc::System);
    }
    match text.strip_prefix("2_").and_then(|minor| minor.parse::<u32>().ok()) {
        Some(minor) if minor >= 17 => Ok(Glibc::From(format!("2_{minor}"))),
        _ => Err("write a version of glibc from 2_17 on, such as 2_28, or `system`".to_owned()),
    }
}

/// Runs the chore.
///
/// # Errors
/// When interrupted, or maturin is not available or fails.
pub(crate) fn run(options: &Options, interrupt: &Interrupt) -> Result<bool, Failed> {
    let glibc = options.manylinux.clone().unwrap_or(Glibc::From(OLDEST.to_owned()));
    let wheel = match built(&options.out, &glibc, Profile::Release, interrupt)? {
        Err(why) if options.manylinux.is_none() => {
            say!("{why}\nThis machine's glibc is taken.");
            built(&options.out, &Glibc::System, Profile::Release, interrupt)?
        }
        built => built,
    };
    let wheel = wheel.map_err(Failed::Because)?;
    divide(&wheel, &options.out, interrupt)?;
    let length = fs::metadata(&wheel).map_err(failed(&wheel))?.len();
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let newest = Run::new("python3", interrupt)
        .args(["-c", NEWEST_GLIBC])
        .args([&wheel])
        .limit(SHORT)
        .quiet()
        .run()?;
    let newest = last(&newest.output).concat();
    say!("{name}: {} KB, for {}; newest symbol of glibc: {newest}", length.div_ceil(1000), platform(&name));
    tried(&wheel, interrupt)
}

/// Moves the debug information of the wheel's module to a file of its own in `out`.
///
/// # Errors
/// When interrupted, or a tool fails.
fn divide(wheel: &Path, out: &Path, interrupt: &Interrupt) -> Verdict {
    let divider = Divider::of_this_machine(interrupt);
    if !divider.is_there() {
        return Ok(());
    }
    let folder = scratch::folder()?;
    let python = |args: &[&Path]| debug_files::run("python3", args, interrupt);
    python(&["-m".as_ref(), "zipfile".as_ref(), "-e".as_ref(), wheel, folder.path()])?;
    let module = folder.path().join(MODULE);
    divider.split(&module, Kept::Library)?;
    let name = format!("{}.debug", module.file_name().unwrap_or_default().to_string_lossy());
    let debug = out.join(&name);
    fs::copy(module.with_file_name(".debug").join(&name), &debug).map_err(failed(&debug))?;
    say!("{name}: the module's debug information; debuggers look for it in .debug beside the module");
    python(&["-c".as_ref(), PACK.as_ref(), folder.path(), wheel])
}

/// Installs the wheel in a new environment of each interpreter, and makes a link with it. Returns whether all
/// succeeded.
fn tried(wheel: &Path, interrupt: &Interrupt) -> Result<bool, Failed> {
    let folder = Workspace::load(false, interrupt)?.target().join("python");
    let made = tempfile::tempdir_in(&folder).map_err(failed(&folder))?;
    let mut all = true;
    for (version, interpreter) in interpreters() {
        let Some(interpreter) = interpreter else {
            say!("CPython 3.{version}: not here");
            continue;
        };
        let environment = made.path().join(format!("3.{version}"));
        let python = match installed(&interpreter, &environment, wheel, interrupt)? {
            Ok(python) => python,
            Err(why) => {
                say!("CPython 3.{version}: {why}");
                all = false;
                continue;
            }
        };
        let run = Run::new(python, interrupt).args(["-c", TRIED]).args([environment.join("target")]);
        let ended = run.limit(SHORT).quiet().run()?;
        all &= ended.status.success();
        let outcome =
            if ended.status.success() { "ok".to_owned() } else { last(&ended.output).join("\n    ") };
        say!("CPython 3.{version}: {outcome}");
    }
    Ok(all)
}

/// A profile of cargo's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Profile {
    /// For users.
    Release,
    /// For tests: it takes the crates of others that the other tests take, too.
    Dev,
}

/// Builds the wheel into `out`, and returns its path. `Err` inside says why maturin or Zig is not available.
///
/// # Errors
/// When interrupted, or maturin fails.
pub(super) fn built(
    out: &Path,
    glibc: &Glibc,
    profile: Profile,
    interrupt: &Interrupt,
) -> Result<Result<PathBuf, String>, Failed> {
    let maturin = match MATURIN.folder(|_| Ok(()), interrupt)? {
        Ok(folder) => folder.join("bin/maturin"),
        Err(why) => return Ok(Err(why)),
    };
    let zig = match glibc {
        Glibc::System => None,
        Glibc::From(_) => match ZIG.folder(|_| Ok(()), interrupt)? {
            Ok(folder) => Some(folder.join("ziglang/zig")),
            Err(why) => return Ok(Err(why)),
        },
    };
    let folder = Workspace::load(false, interrupt)?.target().join("python");
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    // A folder of its own shows the name of the built wheel.
    let made = tempfile::tempdir_in(&folder).map_err(failed(&folder))?;
    let run = Run::new(maturin, interrupt).directory(root()).limit(LIMIT);
    let run = run.args(["build", "--locked", "--manifest-path", "python/Cargo.toml"]);
    // The debug information is to be kept in a file of its own.
    let run = if profile == Profile::Release { run.args(["--release", "--strip", "false"]) } else { run };
    let run = run.args(["--out"]).args([made.path()]).env("CARGO_TERM_QUIET", "true");
    let run = match (glibc, zig) {
        (Glibc::From(version), Some(zig)) => {
            let run = run.args(["--zig", "--compatibility", &format!("manylinux_{version}")]);
            run.env("CARGO_ZIGBUILD_ZIG_PATH", zig)
        }
        _ => run,
    };
    let ended = run.run()?;
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
mod test {
    use super::*;

    #[test]
    fn a_glibc_is_a_version_or_the_systems() {
        assert_eq!(parse_glibc("2_28"), Ok(Glibc::From("2_28".to_owned())));
        assert_eq!(parse_glibc("system"), Ok(Glibc::System));
        for wrong in ["", "2_16", "2.28", "2_", "3_1", "manylinux_2_28"] {
            assert!(parse_glibc(wrong).unwrap_err().contains("2_28"), "{wrong}");
        }
    }

    #[test]
    fn a_divided_wheel_has_a_small_module_and_a_record_of_it() {
        const MAKE: &str = "
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[2], 'w') as wheel:
    wheel.write(sys.argv[1], 'farjump/_native.abi3.so')
    wheel.writestr('farjump-1.dist-info/RECORD', 'farjump/_native.abi3.so,sha256=old,1\\nfarjump-1.dist-info/RECORD,,\\n')
";
        const CHECK: &str = "
import base64, hashlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    module = wheel.read('farjump/_native.abi3.so')
    name, digest, length = wheel.read('farjump-1.dist-info/RECORD').decode().split()[0].split(',')
assert b'.gnu_debuglink' in module and b'.debug_info' not in module
assert base64.urlsafe_b64decode(digest[7:] + '=') == hashlib.sha256(module).digest()
assert int(length) == len(module)
assert b'.debug_info' in open(sys.argv[2], 'rb').read()
";
        let (folder, interrupt) = (scratch::folder().unwrap(), Interrupt::install().unwrap());
        let [source, module, wheel] = ["one.c", "one.so", "one.whl"].map(|name| folder.path().join(name));
        fs::write(&source, "int one(void) { return 1; }").unwrap();
        let run = |tool: &str, args: &[&Path]| debug_files::run(tool, args, &interrupt).unwrap();
        run("cc", &["-g".as_ref(), "-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), &module, &source]);
        run("python3", &["-c".as_ref(), MAKE.as_ref(), &module, &wheel]);
        divide(&wheel, folder.path(), &interrupt).unwrap();
        let debug = folder.path().join("_native.abi3.so.debug");
        run("python3", &["-c".as_ref(), CHECK.as_ref(), &wheel, &debug]);
    }

    #[test]
    fn the_last_part_of_a_wheels_name_is_its_platform() {
        assert_eq!(platform("farjump-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl"), "manylinux_2_34_x86_64");
    }
}
