//! Compiler drivers for C and C++: the native one, and one for each other machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use farjump_core::image::{Level, Machine, Platform};

use crate::error::BuildError;
use crate::error_parts::BITCODE_ADVICE;
use crate::options::Options;
use crate::rules::Rules;
use crate::tools::run_tool::{self, Tool};
use crate::tools::supervisor::Supervisor;
use crate::tools::temp_folder::Scratch;
use crate::tools::trial::{self, Task};

/// The remedy if the native driver does not start.
const ADVICE: &str = "Install a C compiler (gcc or clang), or name one (Options::cc)";

/// The families of drivers, which take the target in different ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    /// One machine each.
    Gcc,
    Clang,
    /// clang, with headers for each machine, and its own names for CPUs.
    Zig,
}

/// A driver for one target.
#[derive(Debug)]
pub(crate) struct Compiler {
    tool: Tool,
    /// Flags that choose the target.
    flags: Vec<String>,
    /// The remedy if the driver does not start.
    advice: String,
    /// The remedy if the C library's headers are missing.
    without_headers: Option<String>,
    /// Runs it.
    pub(crate) supervisor: Supervisor,
}

impl Compiler {
    /// The native driver: the chosen one, or `cc`.
    ///
    /// # Errors
    /// It does not start. On x86-64 its first use reports that.
    pub(crate) fn native(options: &Options, rules: &Rules) -> Result<Compiler, BuildError> {
        let supervisor = &options.supervisor;
        let tool = Tool::parse(OsStr::new(options.cc.as_deref().unwrap_or("cc")));
        // On x86-64 only zig takes other flags, and its name identifies it.
        let family = if rules.machine == Machine::X86_64 && !tool.is_zig() {
            Family::Gcc
        } else {
            family(&tool, supervisor, ADVICE)?
        };
        let mut flags = Vec::new();
        if family == Family::Zig {
            // By default it compiles for the CPU that it runs on.
            flags.push("-mcpu=baseline".to_owned());
        }
        Ok(Compiler::of(tool, quiet(flags, family), ADVICE.to_owned(), supervisor))
    }

    fn of(tool: Tool, flags: Vec<String>, advice: String, supervisor: &Supervisor) -> Compiler {
        Compiler { tool, flags, advice, without_headers: None, supervisor: supervisor.clone() }
    }

    /// The driver for `target`.
    ///
    /// # Errors
    /// The driver for this machine does not start. If its family makes no difference, and for other machines, its first
    /// use reports that.
    pub(crate) fn find(options: &Options, target: Platform, rules: &Rules) -> Result<Compiler, BuildError> {
        let native = rules.is_native();
        if native && target.level == Level::BASELINE {
            return Compiler::native(options, rules);
        }
        let advice = if native { ADVICE.to_owned() } else { advice(rules) };
        let tool = if native {
            Tool::parse(OsStr::new(options.cc.as_deref().unwrap_or("cc")))
        } else {
            cross(options, rules, &advice)
        };
        let family = match family(&tool, &options.supervisor, &advice) {
            // The driver's first use reports the error. Rust for another machine needs no driver.
            Err(_) if !native => Family::Gcc,
            family => family?,
        };
        let mut flags = Vec::new();
        match family {
            // Beside a `cc` that is clang there may be a `c++` that is gcc's, which knows no `--target`.
            Family::Gcc | Family::Clang if native => {}
            Family::Gcc => flags.extend(rules.baseline.iter().copied().map(str::to_owned)),
            Family::Clang => {
                flags.push(format!("--target={}", rules.gnu_triple));
                flags.extend(rules.baseline.iter().copied().map(str::to_owned));
            }
            Family::Zig => flags.extend(["-target".to_owned(), rules.gnu_triple.to_owned()]),
        }
        if target.level != Level::BASELINE {
            flags.push(match family {
                Family::Zig => format!("-mcpu=x86_64_{}", target.level),
                Family::Gcc | Family::Clang => format!("-march=x86-64-{}", target.level),
            });
        }
        let mut compiler = Compiler::of(tool, quiet(flags, family), advice, &options.supervisor);
        compiler.do_without_headers(rules, family);
        Ok(compiler)
    }

    /// The driver that writes and reads bitcode for a machine: the one for its images if that is clang or zig,
    /// otherwise `clang` or `zig cc`.
    ///
    /// # Errors
    /// There is no such driver, or none of those installed works.
    pub(crate) fn for_bitcode(options: &Options, rules: &Rules) -> Result<Compiler, BuildError> {
        let named = options.target_ccs.iter().rev().find(|(machine, _)| *machine == rules.machine);
        let named = named.map(|(_, cc)| cc.as_str()).filter(|_| !rules.is_native());
        let chosen = [named, options.cc.as_deref()].into_iter().flatten();
        let drivers = chosen.chain(["cc", "clang", "zig cc"]).map(|text| Tool::parse(OsStr::new(text)));
        let found = first_for_all_machines(drivers, rules, &options.supervisor, BITCODE_ADVICE);
        let Some((tool, family)) = found.map_err(|broken| broken.1)? else {
            return Err(BuildError::NoBitcodeCompiler);
        };
        let mut flags = match family {
            Family::Zig if rules.is_native() => vec!["-mcpu=baseline".to_owned()],
            Family::Zig => vec!["-target".to_owned(), rules.gnu_triple.to_owned()],
            Family::Clang | Family::Gcc => vec![format!("--target={}", rules.gnu_triple)],
        };
        if family == Family::Clang {
            flags.extend(rules.baseline.iter().copied().map(str::to_owned));
        }
        let mut compiler = Compiler::of(tool, quiet(flags, family), ADVICE.to_owned(), &options.supervisor);
        compiler.do_without_headers(rules, family);
        Ok(compiler)
    }

    /// Makes clang use only its own headers if those of the C library for the machine are missing.
    fn do_without_headers(&mut self, rules: &Rules, family: Family) {
        let compiles =
            || trial::try_on_a_line(&self.tool, Task::Compile(&self.flags), &self.supervisor, &self.advice);
        if !rules.is_native() && family == Family::Clang && !self.has_headers() && compiles().is_ok() {
            // Then clang's own headers do not look for the C library's.
            self.flags.push("-ffreestanding".to_owned());
            self.without_headers = Some(format!(
                "The C library's headers for {} are not installed. Install {}",
                rules.machine,
                in_debian(rules.packages[1])
            ));
        }
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> String {
        self.tool.name()
    }

    /// Compiles `input` to `output` by a command with all flags but `flags`. Returns the driver's warnings.
    ///
    /// # Errors
    /// The driver's, or that it does not start.
    pub(crate) fn compile(
        &self,
        mut command: Command,
        flags: &[&str],
        input: &Path,
        output: &Path,
    ) -> Result<String, BuildError> {
        command.args(flags).arg("-c").arg(input).arg("-o").arg(output);
        let said = self.run(&mut command)?;
        let mut messages = run_tool::messages(&said);
        if said.status.success() {
            return Ok(messages);
        }
        if let Some(missing) = &self.without_headers {
            messages = format!("{messages}\n{missing}");
        }
        Err(BuildError::Compile { tool: run_tool::program(&command), path: input.to_owned(), messages })
    }

    /// Runs a command made by [`Compiler::command`].
    ///
    /// # Errors
    /// The driver does not start.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Output, BuildError> {
        self.supervisor.run(command, &self.advice)
    }

    /// A command that compiles C, or C++.
    pub(crate) fn command(&self, cxx: bool) -> Command {
        let mut command = if cxx { self.tool.with_last(cxx_of).command() } else { self.tool.command() };
        command.args(&self.flags);
        command
    }

    /// The compiler's support routines (`libgcc.a`, compiler-rt), which code may call implicitly: for 128-bit
    /// division, for example. `None` if the driver has none or does not say.
    pub(crate) fn runtime_library(&self) -> Option<PathBuf> {
        let output = self.run(self.command(false).arg("-print-libgcc-file-name")).ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        (output.status.success() && path.is_absolute() && path.is_file()).then_some(path)
    }

    /// Returns whether it is zig's.
    pub(crate) fn is_zig(&self) -> bool {
        self.tool.is_zig()
    }

    /// Adds flags to those that choose the target.
    pub(crate) fn add_flags(&mut self, flags: &[String]) {
        self.flags.extend_from_slice(flags);
    }

    /// The names of its predefined macros with these flags too; `None` if it refuses them.
    ///
    /// # Errors
    /// The driver does not start.
    pub(crate) fn macros(&self, flags: &[String]) -> Result<Option<BTreeSet<String>>, BuildError> {
        let mut command = self.command(false);
        command.args(flags).args(["-E", "-dM", "-x", "c", "/dev/null"]);
        let output = self.run(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next());
        Ok(output.status.success().then(|| names.map(str::to_owned).collect()))
    }

    /// zig's linker, which comes with the driver.
    pub(crate) fn own_linker(&self) -> Option<Tool> {
        self.tool.is_zig().then(|| self.tool.with_last(|_| "ld.lld".to_owned()))
    }

    /// Returns whether a source can include the C library's headers.
    fn has_headers(&self) -> bool {
        let mut command = self.command(false);
        command.args(["-E", "-x", "c", "-include", "stdint.h", "/dev/null", "-o", "/dev/null"]);
        self.run(&mut command).is_ok_and(|output| output.status.success())
    }
}

/// The driver for another machine: the named one, or the first that compiles a line. If none does, an installed one or
/// the machine's own gcc, whose first use reports the error. Rust needs no driver.
fn cross(options: &Options, rules: &Rules, advice: &str) -> Tool {
    let named = options.target_ccs.iter().rev().find(|(machine, _)| *machine == rules.machine);
    if let Some((_, named)) = named {
        return Tool::parse(OsStr::new(named));
    }
    let supervisor = &options.supervisor;
    if let Some(tool) = options.cc.as_deref().map(|cc| Tool::parse(OsStr::new(cc)))
        && family(&tool, supervisor, ADVICE).is_ok_and(|family| family != Family::Gcc)
    {
        return tool;
    }
    let gcc = Tool::from(&*format!("{}-gcc", rules.gnu_triple));
    let is_there = gcc.is_in_path();
    if is_there && trial::try_on_a_line(&gcc, Task::Compile(&[]), supervisor, advice).is_ok() {
        return gcc;
    }
    let others = ["clang", "cc", "zig cc"].map(|text| Tool::parse(OsStr::new(text)));
    match first_for_all_machines(others.into_iter(), rules, supervisor, advice) {
        Ok(Some((tool, _))) => tool,
        Err(broken) if !is_there => broken.0,
        Ok(None) | Err(_) => gcc,
    }
}

/// An installed driver that does not work, and its error.
type Broken = Box<(Tool, BuildError)>;

/// The first of these drivers that is clang or zig, and compiles a line for the machine.
///
/// # Errors
/// No driver does, and an installed one does not work: the error of the first such driver.
fn first_for_all_machines(
    drivers: impl Iterator<Item = Tool>,
    rules: &Rules,
    supervisor: &Supervisor,
    advice: &str,
) -> Result<Option<(Tool, Family)>, Broken> {
    let mut broken = None;
    for tool in drivers.filter(Tool::is_in_path) {
        let tried = family(&tool, supervisor, advice).and_then(|family| {
            let flags = match family {
                Family::Gcc => return Ok(None),
                Family::Clang => vec![format!("--target={}", rules.gnu_triple)],
                Family::Zig => vec!["-target".to_owned(), rules.gnu_triple.to_owned()],
            };
            trial::try_on_a_line(&tool, Task::Compile(&flags), supervisor, advice)?;
            Ok(Some(family))
        });
        match tried {
            Ok(Some(family)) => return Ok(Some((tool, family))),
            Ok(None) => {}
            Err(error) => broken = broken.or_else(|| Some(Box::new((tool, error)))),
        }
    }
    broken.map_or(Ok(None), Err)
}

fn advice(rules: &Rules) -> String {
    format!(
        "Install {}, or clang with lld, or zig (`pip install ziglang`), or name a \
         compiler for {} (Options::target_ccs)",
        in_debian(rules.packages[0]),
        rules.machine
    )
}

fn in_debian(package: &str) -> String {
    format!("{package} (its name in Debian and Ubuntu)")
}

/// The family of a driver.
///
/// # Errors
/// It does not start.
fn family(tool: &Tool, supervisor: &Supervisor, advice: &str) -> Result<Family, BuildError> {
    if tool.is_zig() {
        return Ok(Family::Zig);
    }
    // A driver that knows no `--version` belongs to no other family.
    let said = supervisor.run(tool.command().arg("--version"), advice)?;
    let is_clang = said.status.success() && run_tool::messages(&said).contains("clang");
    Ok(if is_clang { Family::Clang } else { Family::Gcc })
}

/// Adds the flag that silences clang about flags that only other drivers have.
fn quiet(mut flags: Vec<String>, family: Family) -> Vec<String> {
    if family != Family::Gcc {
        flags.push("-Wno-unused-command-line-argument".to_owned());
    }
    flags
}

/// The driver for C++ that belongs to a C driver: `g++-12` to `gcc-12`, `clang++` to `clang`, `c++` to `cc`.
fn cxx_of(cc: &str) -> String {
    let (folder, program) = cc.rsplit_once('/').map_or(("", cc), |(folder, program)| (folder, program));
    let program = if program.contains("++") {
        program.to_owned()
    } else if program.contains("clang") {
        program.replacen("clang", "clang++", 1)
    } else if program.contains("gcc") {
        program.replacen("gcc", "g++", 1)
    } else {
        program.replacen("cc", "c++", 1)
    };
    if cc.contains('/') { format!("{folder}/{program}") } else { program }
}

/// Tries a C compiler driver, named as in [`Options::cc`](crate::options::Options::cc), on one line. Returns the first
/// line of its version text.
///
/// # Errors
/// The driver does not start, fails, or takes longer than `supervisor` permits.
pub fn try_compiler(driver: &OsStr, supervisor: &Supervisor) -> Result<String, BuildError> {
    let scratch = Scratch::new()?;
    let _guarded = supervisor.begin(&scratch)?;
    let tool = Tool::parse(driver);
    trial::try_on_a_line(&tool, Task::Compile(&[]), supervisor, ADVICE)?;
    trial::version(&tool, supervisor, ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_c_driver_has_its_cxx_driver() {
        for (c, plus) in [
            ("cc", "c++"),
            ("gcc", "g++"),
            ("/usr/bin/x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-g++-12"),
            ("clang-19", "clang++-19"),
            ("/opt/gcc/bin/clang", "/opt/gcc/bin/clang++"),
            ("g++", "g++"),
        ] {
            assert_eq!(cxx_of(c), plus);
        }
    }
}
