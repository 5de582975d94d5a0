//! Causes of imports that few targets offer: compiler flags, and the runtimes of languages.

use std::collections::HashSet;
use std::fmt;

/// Most names in a message.
const LISTED: usize = 12;
/// Most names of one cause, which follow those of all imports.
const LISTED_OF_CAUSE: usize = 3;
/// Most bytes of one name in a message.
const NAME_LEN: usize = 200;

/// A known cause of imports, and its remedy.
#[derive(Debug)]
struct Cause {
    /// The start of a clause: `compiled with …`.
    what: &'static str,
    cure: &'static str,
    /// Starts of symbol names. A name that ends with a dollar sign is a whole one.
    symbols: &'static [&'static str],
}

/// The number of the first causes: flags for which a compiler's driver links a runtime.
const RUNTIMES: usize = 8;

/// The causes. The first match is the cause of a symbol.
static CAUSES: &[Cause] = &[
    Cause {
        what: "AddressSanitizer",
        cure: "compile without -fsanitize=address",
        symbols: &["__asan_", "__odr_asan"],
    },
    Cause {
        what: "UndefinedBehaviorSanitizer",
        cure: "compile without -fsanitize=undefined, or with -fsanitize-trap=undefined (gcc before 13: \
               -fsanitize-undefined-trap-on-error)",
        symbols: &["__ubsan_"],
    },
    Cause { what: "ThreadSanitizer", cure: "compile without -fsanitize=thread", symbols: &["__tsan_"] },
    Cause {
        what: "MemorySanitizer",
        cure: "compile without -fsanitize=memory",
        symbols: &["__msan_", "__msan$"],
    },
    Cause {
        what: "HWAddressSanitizer",
        cure: "compile without -fsanitize=hwaddress",
        symbols: &["__hwasan_"],
    },
    Cause {
        what: "the coverage of a sanitizer or fuzzer",
        cure: "compile without -fsanitize-coverage and -fsanitize=fuzzer",
        symbols: &["__sanitizer_"],
    },
    Cause {
        what: "measuring coverage or making a profile",
        cure: "compile without --coverage, -fprofile-generate and -fprofile-instr-generate (in Rust without \
               -C instrument-coverage and -C profile-generate)",
        symbols: &["__gcov_", "__llvm_profile_", "__llvm_gcov_", "__llvm_gcda_", "llvm_gcda_"],
    },
    Cause {
        what: "OpenMP",
        cure: "compile without -fopenmp: one thread runs a target's calls",
        symbols: &["GOMP_", "__kmpc_", "omp_"],
    },
    Cause {
        what: "calls at the start and end of each function",
        cure: "compile without -finstrument-functions and -pg",
        symbols: &["__cyg_profile_", "__fentry__$", "mcount$", "_mcount$"],
    },
    Cause {
        what: "the stack protector",
        cure: "compile with -fno-stack-protector, or have the target export it",
        symbols: &["__stack_chk_"],
    },
    Cause { what: "checked versions of C functions", cure: "compile with -U_FORTIFY_SOURCE", symbols: &[] },
    Cause {
        what: "Rust's memory allocation",
        cure: "use core alone (#![no_std] without alloc), or write a global allocator over functions that the \
               target exports",
        symbols: &["__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rust_no_alloc", "__rdl_", "__rg_"],
    },
    Cause {
        what: "Rust's panics and unwinding",
        cure: "build with panic=abort, and depend on farjump_ifunc, which has the panic handler",
        symbols: &[
            "rust_eh_personality$",
            "rust_begin_unwind$",
            "rust_panic",
            "__rust_panic",
            "__rust_start_",
        ],
    },
    Cause {
        what: "Rust's std",
        cure: "it does not travel: use core alone (#![no_std]), and functions that the target exports",
        symbols: &["_ZN3std", "_ZN4core", "_ZN5alloc", "__rust_", "rust_"],
    },
    Cause {
        what: "the guard of a static variable that is set up at its first use",
        cure: "compile with -fno-threadsafe-statics, or make the variable a constant",
        symbols: &["__cxa_guard_"],
    },
    Cause {
        what: "C++ exceptions",
        cure: "compile with -fno-exceptions",
        symbols: &[
            "__cxa_throw",
            "__cxa_rethrow",
            "__cxa_begin_catch",
            "__cxa_end_catch",
            "_Unwind_",
            "__gxx_p",
        ],
    },
    Cause {
        what: "C++ type information",
        cure: "compile with -fno-rtti and use no dynamic_cast or typeid",
        symbols: &["_ZTVN10__cxxabiv", "__dynamic_cast$", "_ZTI", "_ZTS", "__cxa_bad_"],
    },
    Cause {
        what: "C++ memory and library functions",
        cure: "have the target export libstdc++.so.6 or libc++.so.1, or link a static library of yours",
        symbols: &["_Znw", "_Zna", "_Zdl", "_Zda", "_ZSt", "_ZNSt", "_ZNKSt", "_ZNSs", "__cxa_", "_ZTVSt"],
    },
    Cause {
        what: "Go",
        cure: "Go's runtime does not travel: write the function in C, C++ or Rust",
        symbols: &["runtime.", "runtime/", "_cgo_", "crosscall2$", "go.", "go:", "type:", "_rt0_amd64"],
    },
    Cause {
        what: "Python or Numba's runtime",
        cure: "compile for numbers and arrays alone, without Python's objects and Numba's memory (in Numba no \
               wrappers, and _nrt=False)",
        symbols: &["NRT_", "numba_", "Py", "_Py"],
    },
    Cause {
        what: "Fortran's runtime",
        cure: "have the target export libgfortran.so.5, or use no input and output there",
        symbols: &["_gfortran_"],
    },
];

/// The position of the cause of an import in [`CAUSES`].
fn cause_of(symbol: &str) -> Option<usize> {
    let fits = |cause: &Cause| {
        cause.symbols.iter().any(|start| match start.strip_suffix('$') {
            Some(whole) => symbol == whole,
            None => symbol.starts_with(start),
        })
    };
    // `__memcpy_chk`; the stack protector's come first.
    let fortified =
        |cause: &Cause| cause.symbols.is_empty() && symbol.starts_with("__") && symbol.ends_with("_chk");
    // Rust's names of version 0 have the crate in them, behind a hash: `_RNvNtCs5_3std2io6_print`.
    let of_std = |cause: &Cause| {
        cause.what == "Rust's std"
            && symbol.starts_with("_R")
            && ["_3std", "_4core", "_5alloc"].iter().any(|name| symbol.contains(name))
    };
    // rustc mangles the allocator's symbols as those of a crate `__rustc`.
    let plain = symbol.strip_prefix("_R").and_then(|_| symbol.split_once("7___rustc"));
    if let Some((_, rest)) = plain {
        let name = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        return cause_of(name.strip_prefix("___").map_or(name, |_| &name[1..]));
    }
    CAUSES.iter().position(|cause| fits(cause) || fortified(cause) || of_std(cause))
}

/// Imports of one known cause, and the remedy. Its text is a clause without a full stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportCause {
    /// The imports.
    pub names: Names,
    cause: usize,
}

impl fmt::Display for ImportCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Cause { what, cure, .. }) = CAUSES.get(self.cause) else { return Ok(()) };
        let verb = if self.names.len() == 1 { "comes" } else { "come" };
        write!(out, "{} {verb} from {what}: {cure}", self.names)
    }
}

/// The known causes of some of these imports, in a fixed order. `imports` may contain a name more than once.
pub fn import_causes<'a>(imports: impl IntoIterator<Item = &'a str>) -> Vec<ImportCause> {
    let mut found: Vec<ImportCause> = Vec::new();
    let mut seen = HashSet::new();
    for name in imports.into_iter().filter(|name| seen.insert(*name)) {
        let Some(cause) = cause_of(name) else { continue };
        match found.binary_search_by_key(&cause, |found| found.cause) {
            Ok(at) => found[at].names.push(name, LISTED_OF_CAUSE),
            Err(at) => found.insert(at, ImportCause { names: Names::from_iter([name]), cause }),
        }
    }
    found
}

/// The first cause of some of these imports that is a compiler's flag with its own runtime.
pub fn runtime_cause<'a>(imports: impl IntoIterator<Item = &'a str>) -> Option<ImportCause> {
    import_causes(imports).into_iter().find(|found| found.cause < RUNTIMES)
}

/// Names of symbols for a message: the first of them, each once, and the number of the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    listed: Vec<String>,
    more: usize,
}

impl Names {
    /// The first name; empty if there is none.
    pub fn first(&self) -> &str {
        self.listed.first().map_or("", |name| name)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.listed.len() + self.more
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Adds a name that is not listed. Lists it if fewer than `most` names are listed.
    fn push(&mut self, name: &str, most: usize) {
        if self.listed.len() >= most {
            self.more += 1;
            return;
        }
        self.listed.push(match name.get(..NAME_LEN) {
            Some(start) if start.len() < name.len() => format!("{start}…"),
            _ => name.to_owned(),
        });
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Names {
        let (mut all, mut seen) = (Names::default(), HashSet::new());
        for name in names {
            if seen.insert(name) {
                all.push(name, LISTED);
            }
        }
        all
    }
}

/// `` `a` ``, `` `a` and `b` ``, `` `a`, `b` and 3 more ``.
impl fmt::Display for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.listed.iter().enumerate() {
            let is_last = index + 1 == self.len();
            let before = if index == 0 {
                ""
            } else if is_last {
                " and "
            } else {
                ", "
            };
            write!(out, "{before}`{name}`")?;
        }
        if self.more > 0 { write!(out, " and {} more", self.more) } else { Ok(()) }
    }
}

/// Imports that a target does not offer. Its text is the end of a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingImports {
    /// Their names.
    pub names: Names,
    /// The known causes.
    pub causes: Vec<ImportCause>,
    /// Number of imports of no known cause.
    pub unexplained: usize,
    /// True if the C library, which each process has, defines those of no known cause.
    pub of_libc: bool,
}

impl MissingImports {
    /// Describes the imports with these names, each in the order of the image, perhaps more than once. `is_of_libc`
    /// returns whether the C library defines a name.
    pub fn new<'a>(
        imports: impl IntoIterator<Item = &'a str>,
        is_of_libc: impl Fn(&str) -> bool,
    ) -> MissingImports {
        let mut seen = HashSet::new();
        let each: Vec<&str> = imports.into_iter().filter(|name| seen.insert(*name)).collect();
        let unexplained: Vec<_> = each.iter().filter(|name| cause_of(name).is_none()).collect();
        MissingImports {
            causes: import_causes(each.iter().copied()),
            unexplained: unexplained.len(),
            of_libc: !unexplained.is_empty() && unexplained.iter().all(|name| is_of_libc(name)),
            names: each.into_iter().collect(),
        }
    }

    /// The start of a clause: the target exports none of them.
    pub(crate) fn not_exported(&self) -> String {
        if self.names.len() == 1 {
            format!("exports no {}", self.names)
        } else {
            format!("exports none of {}", self.names)
        }
    }

    /// The known causes with their cures, each as the end of a sentence behind another one.
    pub(crate) fn known_cures(&self) -> String {
        self.causes.iter().map(|cause| format!(". {cause}")).collect()
    }

    /// Sentences: the known causes with their cures, and the cure for the other imports.
    pub(crate) fn cures(&self) -> String {
        let mut text = String::new();
        for cause in &self.causes {
            text += &format!(" {cause}.");
        }
        if self.unexplained > 0 {
            let others = match (self.causes.is_empty(), self.unexplained, self.names.len()) {
                (true, _, 1) => "it",
                (true, ..) => "them",
                (false, 1, _) => "the other",
                (false, ..) => "the others",
            };
            text += &match self.of_libc {
                true => format!(
                    " Have the target offer {others} with all of libc (TargetBuilder::process_symbols)."
                ),
                false => format!(
                    " Have the target export {others} (Target::export, TargetBuilder::export_library)."
                ),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_many_are_cut() {
        let list = |count: usize| {
            let names: Vec<_> = (0..count).map(|number| format!("f{number}")).collect();
            names.iter().map(|name| &**name).collect::<Names>().to_string()
        };
        assert_eq!((list(1), list(2)), ("`f0`".into(), "`f0` and `f1`".into()));
        assert_eq!(list(3), "`f0`, `f1` and `f2`");
        assert!(list(12).ends_with(", `f10` and `f11`"), "{}", list(12));
        assert!(list(13).ends_with(", `f11` and 1 more") && list(60_000).ends_with(" and 59988 more"));
        let long = "x".repeat(4096);
        assert!(Names::from_iter([&*long, &*long]).to_string().len() < 300);
        assert_eq!(Names::from_iter(["a", "b", "a"]).to_string(), "`a` and `b`");
    }

    #[test]
    fn families_of_imports_have_their_cause_and_cure() {
        for (symbol, what, cure) in [
            ("__asan_report_load8", "AddressSanitizer", "-fsanitize=address"),
            ("__ubsan_handle_add_overflow", "UndefinedBehaviorSanitizer", "-fsanitize-trap=undefined"),
            ("__tsan_read8", "ThreadSanitizer", "-fsanitize=thread"),
            ("__msan_warning_noreturn", "MemorySanitizer", "-fsanitize=memory"),
            ("__sanitizer_cov_trace_pc_guard", "coverage of a sanitizer", "-fsanitize-coverage"),
            ("__gcov_init", "coverage", "--coverage"),
            ("__llvm_profile_instrument_memop", "profile", "-fprofile-instr-generate"),
            ("__cyg_profile_func_enter", "start and end of each function", "-finstrument-functions"),
            ("__stack_chk_fail", "stack protector", "-fno-stack-protector"),
            ("__memcpy_chk", "checked versions", "-U_FORTIFY_SOURCE"),
            ("GOMP_parallel", "OpenMP", "-fopenmp"),
            ("__rust_alloc", "Rust's memory", "#![no_std]"),
            ("_RNvCs5QKde7ScR4H_7___rustc12___rust_alloc", "Rust's memory", "#![no_std]"),
            ("_RNvCs5QKde7ScR4H_7___rustc17rust_begin_unwind", "Rust's panics", "panic=abort"),
            ("rust_eh_personality", "Rust's panics", "panic=abort"),
            ("_ZN3std2io5stdio6_print17h0123456789abcdefE", "Rust's std", "#![no_std]"),
            ("_RNvNtNtCs8fN_3std2io5stdio6__print", "Rust's std", "#![no_std]"),
            ("__cxa_guard_acquire", "guard of a static", "-fno-threadsafe-statics"),
            ("_ZTVN10__cxxabiv120__si_class_type_infoE", "C++ type information", "-fno-rtti"),
            ("_Znwm", "C++ memory", "libstdc++.so.6"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "C++ memory", "libstdc++.so.6"),
            ("runtime.mallocgc", "Go", "runtime"),
            ("NRT_Allocate", "Numba", "_nrt=False"),
            ("_gfortran_st_write", "Fortran", "libgfortran.so.5"),
        ] {
            let causes = import_causes([symbol]);
            assert_eq!(causes.len(), 1, "{symbol}");
            let text = causes[0].to_string();
            assert!(text.starts_with(&format!("`{symbol}` comes from ")), "{text}");
            assert!(text.contains(what) && text.contains(cure), "{symbol}: {text}");
        }
        for symbol in ["store_get", "printf", "log2", "memcpy", "_ZN5store3getEm", "_RNvCs1_5store3get", ""] {
            assert_eq!(import_causes([symbol]), [], "{symbol}");
        }
    }

    #[test]
    fn each_import_cause_is_listed_once_with_exports_for_the_rest() {
        const EXPORT: &str = "(Target::export, TargetBuilder::export_library).";
        let new = |names: &[&'static str]| {
            MissingImports::new(names.iter().copied(), |name| ["printf", "puts"].contains(&name))
        };
        let missing = new(&["store_get", "__asan_load8", "__tsan_read8", "__asan_load4"]);
        assert_eq!(
            missing.not_exported(),
            "exports none of `store_get`, `__asan_load8`, `__tsan_read8` and `__asan_load4`"
        );
        assert_eq!(
            missing.cures(),
            format!(
                " `__asan_load8` and `__asan_load4` come from AddressSanitizer: compile without -fsanitize=address. \
                 `__tsan_read8` comes from ThreadSanitizer: compile without -fsanitize=thread. Have the target export \
                 the other {EXPORT}"
            )
        );
        let known = new(&["__asan_load8", "__asan_load8"]);
        assert_eq!((known.not_exported().as_str(), known.unexplained), ("exports no `__asan_load8`", 0));
        assert!(!known.cures().contains("export"), "{}", known.cures());
        assert_eq!(new(&["a", "a"]).cures(), format!(" Have the target export it {EXPORT}"));
        assert_eq!(new(&["a", "b"]).cures(), format!(" Have the target export them {EXPORT}"));
        assert_eq!(new(&["a", "printf"]).cures(), format!(" Have the target export them {EXPORT}"));
        let libc = "with all of libc (TargetBuilder::process_symbols).";
        assert_eq!(new(&["printf", "puts"]).cures(), format!(" Have the target offer them {libc}"));
    }
}
