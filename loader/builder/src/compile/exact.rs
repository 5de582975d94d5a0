//! Flags that make compilers use exactly the features of one CPU.
//!
//! A peer names the features of its CPU in the compilers' words. Not every compiler knows all of them, and with one
//! feature a compiler may turn on others, which the CPU need not have. So this module queries the compiler's predefined
//! macros, which name the features in use. It takes a feature only if the feature changes the macros, and if the CPU
//! has each feature that comes with it.
//!
//! The name of the CPU only chooses the order of instructions (`-mtune`). `-march=NAME` would turn on the features with
//! which processors of that name are sold, and a virtual machine may hide some of them.

use std::collections::BTreeSet;

use farjump_core::cpu::Cpu;
use farjump_core::image::Machine;

use crate::compile::compiler::Compiler;
use crate::compile::rust;
use crate::error::BuildError;

/// Names that compilers turn on or off like features, and that stand for no instructions.
const NO_FEATURES: [&str; 1] = ["evex512"];

/// CPUs on which vectors of 512 bits slow down no other code, and which not every compiler knows by name.
const WIDE: [&str; 2] = ["znver4", "znver5"];

/// Flags for gcc, see [`CpuQuery::unrolling`].
const UNROLLING: [&str; 3] =
    ["-funroll-loops", "-fvariable-expansion-in-unroller", "--param=max-variable-expansions-in-unroller=8"];

/// The flags for one CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Exact {
    /// For C and C++, behind those for the CPU's level.
    pub(crate) cflags: Vec<String>,
    /// For rustc.
    pub(crate) rustflags: Vec<String>,
    /// The features that the compilers may use, ascending: those of the CPU's level, and those in the flags.
    pub(crate) features: Vec<String>,
}

impl Exact {
    /// The flags by which `compiler`, and rustc for Rust sources, compile for `cpu`.
    ///
    /// # Errors
    /// No compiler, or one that takes no single features.
    pub(crate) fn find(
        compiler: &Compiler,
        cpu: &Cpu,
        native: bool,
        with: Languages,
    ) -> Result<Exact, BuildError> {
        let of_level = Cpu::of_level(cpu.machine(), cpu.level());
        let mut features: BTreeSet<String> = of_level.features().iter().cloned().collect();
        let mut exact = Exact::default();
        if with.c {
            if compiler.is_zig() {
                return Err(BuildError::NotForOneCpu);
            }
            let query = CpuQuery { compiler, cpu, of_level: &of_level };
            let taken = query.taken()?;
            exact.cflags = flags(cpu.machine(), &taken);
            exact.cflags.extend(query.tuning()?);
            exact.cflags.extend(query.unrolling()?);
            features.extend(taken.into_iter().map(str::to_owned));
        }
        if with.rust {
            let taken = rust::features(cpu, &of_level, native, &compiler.supervisor)?;
            if !taken.is_empty() {
                let words: Vec<_> = taken.iter().map(|feature| format!("+{feature}")).collect();
                exact.rustflags = vec!["-C".to_owned(), format!("target-feature={}", words.join(","))];
            }
            features.extend(taken);
        }
        exact.features = features.into_iter().collect();
        Ok(exact)
    }
}

/// The languages of a build's sources.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Languages {
    /// C or C++.
    pub(crate) c: bool,
    /// Rust, by a file or a crate.
    pub(crate) rust: bool,
}

/// Flags for C that turn on `features`, which the CPU's level does not have.
fn flags(machine: Machine, features: &[&str]) -> Vec<String> {
    match machine {
        Machine::AARCH64 => {
            let words: Vec<_> = features.iter().map(|feature| format!("+{feature}")).collect();
            vec![format!("-march=armv8-a{}", words.concat())]
        }
        Machine::RISCV => {
            // Single letters come first, without a dash.
            let (letters, words): (Vec<&str>, Vec<&str>) =
                features.iter().partition(|feature| feature.len() == 1);
            let words: Vec<_> = words.iter().map(|word| format!("_{word}")).collect();
            vec![format!("-march=rv64gc{}{}", letters.concat(), words.concat())]
        }
        _ => features.iter().map(|feature| format!("-m{feature}")).collect(),
    }
}

/// A query of a compiler's support for a CPU's features.
struct CpuQuery<'a> {
    compiler: &'a Compiler,
    cpu: &'a Cpu,
    of_level: &'a Cpu,
}

impl<'a> CpuQuery<'a> {
    /// The features beyond the level that the compiler accepts, ascending.
    fn taken(&self) -> Result<Vec<&'a str>, BuildError> {
        let beyond = self.cpu.features().iter().map(String::as_str);
        // On x86-64 words with dashes are options for other things than instructions: `soft-float`.
        let is_option = |feature: &&str| self.cpu.machine() == Machine::X86_64 && feature.contains('-');
        let beyond = beyond.filter(|feature| !self.of_level.has(feature) && !is_option(feature));
        let beyond: Vec<&str> = beyond.collect();
        let Some(base) = self.macros(&[])? else { return Ok(Vec::new()) };
        // Usually the compiler knows them all, and has a macro of the same name for each.
        let named = |with: &BTreeSet<String>| {
            let words: BTreeSet<String> = with.difference(&base).flat_map(|name| spellings(name)).collect();
            beyond.iter().all(|feature| words.contains(*feature))
        };
        if let Some(with) = self.macros(&beyond)?
            && named(&with)
            && self.brings_nothing_else(&base, &with)?
        {
            return Ok(beyond);
        }
        let mut taken = Vec::new();
        for feature in beyond {
            if let Some(with) = self.macros(&[feature])?
                && with.difference(&base).next().is_some()
                && self.brings_nothing_else(&base, &with)?
            {
                taken.push(feature);
            }
        }
        // A compiler may accept each of two features, but not both together.
        let together = self.macros(&taken)?.is_some();
        Ok(if together { taken } else { Vec::new() })
    }

    /// The flags by which the compiler chooses and orders instructions for the CPU: by its name, if the compiler knows
    /// the name. Otherwise compilers avoid vectors of 512 bits, which made processors with AVX-512 slower until about
    /// 2020.
    fn tuning(&self) -> Result<Vec<String>, BuildError> {
        let knows =
            |flag: &String| self.compiler.macros(std::slice::from_ref(flag)).map(|macros| macros.is_some());
        let name = self.cpu.name();
        let by_name = format!("-mtune={name}");
        if !name.is_empty() && knows(&by_name)? {
            return Ok(vec![by_name]);
        }
        let wide = "-mprefer-vector-width=512".to_owned();
        let is_wide = WIDE.contains(&name) && self.cpu.machine() == Machine::X86_64 && knows(&wide)?;
        Ok(if is_wide { vec![wide] } else { Vec::new() })
    }

    /// The flags by which gcc sums in several registers, as clang does by itself, so that an addition need not wait for
    /// the previous one. The flags do not affect code that is compiled for size.
    fn unrolling(&self) -> Result<Vec<String>, BuildError> {
        let is_gcc = self.macros(&[])?.is_some_and(|macros| !macros.contains("__clang__"));
        Ok(if is_gcc { UNROLLING.map(str::to_owned).to_vec() } else { Vec::new() })
    }

    /// The compiler's macros with `features` turned on; `None` if it does not know one of them.
    fn macros(&self, features: &[&str]) -> Result<Option<BTreeSet<String>>, BuildError> {
        self.compiler.macros(&flags(self.cpu.machine(), features))
    }

    /// Returns whether the macros `with`, compared with `base`, name no feature that the CPU lacks, and lack no macro
    /// of `base`.
    fn brings_nothing_else(
        &self,
        base: &BTreeSet<String>,
        with: &BTreeSet<String>,
    ) -> Result<bool, BuildError> {
        // The macros of instruction sets begin like this. Other options define others: `UNICODE`.
        if !base.is_subset(with) || with.difference(base).any(|name| !name.starts_with("__")) {
            return Ok(false);
        }
        for name in with.difference(base) {
            let spellings = spellings(name);
            if spellings.iter().any(|word| self.cpu.has(word) || self.of_level.has(word)) {
                continue;
            }
            for word in spellings.iter().filter(|word| !NO_FEATURES.contains(&word.as_str())) {
                let is_feature = self.macros(&[word])?.is_some_and(|with| !with.is_subset(base));
                if is_feature {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The features that a macro may name: `__SSE4_1__` those of `sse4_1`, `sse4.1` and `sse4-1`.
fn spellings(name: &str) -> Vec<String> {
    let word = name.trim_matches('_').to_ascii_lowercase();
    let word =
        ["arm_feature_", "riscv_"].iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(&word);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if word.is_empty() || !word.bytes().all(plain) {
        return Vec::new();
    }
    let mut words = vec![word.to_owned(), word.replace('_', "."), word.replace('_', "-")];
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_become_the_flags_of_their_machine() {
        assert_eq!(flags(Machine::X86_64, &["avx2", "sse4.1"]), ["-mavx2", "-msse4.1"]);
        assert!(flags(Machine::X86_64, &[]).is_empty());
        assert_eq!(flags(Machine::AARCH64, &["lse", "sve2"]), ["-march=armv8-a+lse+sve2"]);
        assert_eq!(flags(Machine::RISCV, &["v", "zba", "zbb"]), ["-march=rv64gcv_zba_zbb"]);
    }

    #[test]
    fn a_macro_names_features_in_each_spelling() {
        assert_eq!(spellings("__AVX2__"), ["avx2"]);
        assert_eq!(spellings("__SSE4_1__"), ["sse4_1", "sse4.1", "sse4-1"]);
        assert_eq!(spellings("__ARM_FEATURE_SVE2_AES"), ["sve2_aes", "sve2.aes", "sve2-aes"]);
        assert_eq!(spellings("__riscv_zba"), ["zba"]);
        assert!(spellings("__").is_empty());
    }
}
