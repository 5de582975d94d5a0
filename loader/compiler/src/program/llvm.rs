//! LLVM, opened at run time: the functions of its stable C interface that compiling needs (`llvm-c/*.h`).

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use farjump_builder::rust_llvms;
use farjump_core::image::Machine;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The environment variable that names the library.
const VARIABLE: &str = "FARJUMP_LIBLLVM";
/// The environment variable that names a compiler of Rust, beside which there is an LLVM. No compiler is
/// searched: `PATH` may lead to any user's.
const RUST: &str = "RUSTC";
/// Names of the library, the newest version first: it reads the bitcode of all others.
const NAMES: [&str; 7] = [
    "libLLVM.so.23.1",
    "libLLVM.so.22.1",
    "libLLVM.so.21.1",
    "libLLVM.so.20.1",
    "libLLVM.so.19.1",
    "libLLVM.so.18.1",
    "libLLVM-17.so.1",
];
/// The oldest LLVM that is used: older versions have another interface for passes and targets.
const OLDEST: c_uint = 17;

/// An opaque LLVM object.
pub(super) type Ref = *mut c_void;
type Bool = c_int;

/// Defines a table of functions by their names, and the function that fills it.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, by their names in C.
        #[allow(non_snake_case, reason = "they have the names that LLVM's headers give them")]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Finds them all in `library`.
            ///
            /// # Safety
            /// They must have the types of LLVM's headers.
            unsafe fn find(library: &Library) -> Result<Functions, libloading::Error> {
                // SAFETY: this function's caller guarantees the types; the library is never closed.
                unsafe {
                    Ok(Functions { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* })
                }
            }
        }
    };
}

functions! {
    LLVMGetVersion: fn(*mut c_uint, *mut c_uint, *mut c_uint);
    LLVMInstallFatalErrorHandler: fn(Option<extern "C" fn(*const c_char)>);
    LLVMContextCreate: fn() -> Ref;
    LLVMContextSetDiagnosticHandler: fn(Ref, Option<extern "C" fn(Ref, Ref)>, Ref);
    LLVMGetDiagInfoDescription: fn(Ref) -> *mut c_char;
    LLVMGetDiagInfoSeverity: fn(Ref) -> c_int;
    LLVMCreateMemoryBufferWithMemoryRangeCopy: fn(*const c_char, usize, *const c_char) -> Ref;
    LLVMGetBufferStart: fn(Ref) -> *const c_char;
    LLVMGetBufferSize: fn(Ref) -> usize;
    LLVMParseBitcodeInContext2: fn(Ref, Ref, *mut Ref) -> Bool;
    LLVMParseIRInContext: fn(Ref, Ref, *mut Ref, *mut *mut c_char) -> Bool;
    LLVMLinkModules2: fn(Ref, Ref) -> Bool;
    LLVMVerifyModule: fn(Ref, c_int, *mut *mut c_char) -> Bool;
    LLVMGetTarget: fn(Ref) -> *const c_char;
    LLVMSetTarget: fn(Ref, *const c_char);
    LLVMGetDataLayoutStr: fn(Ref) -> *const c_char;
    LLVMSetDataLayout: fn(Ref, *const c_char);
    LLVMGetFirstFunction: fn(Ref) -> Ref;
    LLVMGetNextFunction: fn(Ref) -> Ref;
    LLVMGetFirstGlobal: fn(Ref) -> Ref;
    LLVMGetNextGlobal: fn(Ref) -> Ref;
    LLVMGetFirstGlobalAlias: fn(Ref) -> Ref;
    LLVMGetNextGlobalAlias: fn(Ref) -> Ref;
    LLVMIsAGlobalObject: fn(Ref) -> Ref;
    LLVMIsDeclaration: fn(Ref) -> Bool;
    LLVMGetValueName2: fn(Ref, *mut usize) -> *const c_char;
    LLVMGetLinkage: fn(Ref) -> c_int;
    LLVMSetLinkage: fn(Ref, c_int);
    LLVMSetVisibility: fn(Ref, c_int);
    LLVMSetComdat: fn(Ref, Ref);
    LLVMRemoveStringAttributeAtIndex: fn(Ref, c_uint, *const c_char, c_uint);
    LLVMGetTargetFromTriple: fn(*const c_char, *mut Ref, *mut *mut c_char) -> Bool;
    LLVMCreateTargetMachine: fn(Ref, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int) -> Ref;
    LLVMCreateTargetDataLayout: fn(Ref) -> Ref;
    LLVMCopyStringRepOfTargetData: fn(Ref) -> *mut c_char;
    LLVMCreatePassBuilderOptions: fn() -> Ref;
    LLVMRunPasses: fn(Ref, *const c_char, Ref, Ref) -> Ref;
    LLVMGetErrorMessage: fn(Ref) -> *mut c_char;
    LLVMTargetMachineEmitToMemoryBuffer: fn(Ref, Ref, c_int, *mut *mut c_char, *mut Ref) -> Bool;
    LLVMGetHostCPUName: fn() -> *mut c_char;
    LLVMGetHostCPUFeatures: fn() -> *mut c_char;
}

/// An opened LLVM, with the target of this machine.
pub(super) struct Llvm {
    pub(super) functions: Functions,
    major: u16,
    text: String,
    /// This machine's CPU as LLVM describes it: name, and features with their signs.
    pub(super) host: (CString, CString),
    /// The library, which stays open as long as the process lives.
    _library: std::mem::ManuallyDrop<Library>,
}

impl Llvm {
    /// Opens the named library, or the one in `FARJUMP_LIBLLVM`. Without either, opens the newest usable one
    /// among those that the dynamic linker finds and the one of the toolchain of `RUSTC`.
    ///
    /// # Errors
    /// The lack of a usable library, as a clause that says what to install.
    pub(super) fn open(named: Option<&Path>) -> Result<Llvm, String> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        if let Some(named) = named.map(Path::to_path_buf).or_else(|| variable(VARIABLE).map(PathBuf::from)) {
            return Llvm::open_at(&named).map_err(|problem| format!("`{}` {problem}", named.display()));
        }
        let of_rust = variable(RUST).map(|_| rust_llvms()).unwrap_or_default();
        let mut all: Vec<_> = NAMES.iter().map(PathBuf::from).chain(of_rust).collect();
        // Among libraries of one version the system's comes first. Only one usable library is opened: two may
        // share their symbols.
        all.sort_by_key(|path| std::cmp::Reverse(major_in(path)));
        let mut problem = None;
        for path in all {
            match Llvm::open_at(&path) {
                Ok(llvm) => return Ok(llvm),
                Err(other) => {
                    // A missing library explains less than an unusable one.
                    if path.is_absolute() {
                        problem.get_or_insert_with(|| format!("; `{}` {other}", path.display()));
                    }
                }
            }
        }
        Err(format!(
            "there is no LLVM to compile it: install libllvm19 or a newer one, or name its library in {VARIABLE}, or in \
             {RUST} a compiler of Rust, which has one{}",
            problem.unwrap_or_default()
        ))
    }

    fn open_at(path: &Path) -> Result<Llvm, String> {
        // SAFETY: the library is LLVM, or the operator names it as LLVM; its constructors set up LLVM alone.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| format!("cannot be opened: {}", whole(&error)))?;
        // SAFETY: LLVM's C interface is stable: a function of a name keeps its type.
        let functions = unsafe { Functions::find(&library) };
        let functions = functions
            .map_err(|error| format!("is no LLVM of version {OLDEST} or newer: {}", whole(&error)))?;
        let mut version = [0; 3];
        let [major, minor, patch] = &mut version;
        // SAFETY: the function writes three numbers.
        unsafe { (functions.LLVMGetVersion)(major, minor, patch) };
        if version[0] < OLDEST {
            return Err(format!("is LLVM {}: {OLDEST} or newer is needed", version[0]));
        }
        initialise(&library)?;
        let text = format!("LLVM {}.{}.{} ({})", version[0], version[1], version[2], path.display());
        // SAFETY: both return strings, which are this program's to release, at its end.
        let host = unsafe {
            let name = CStr::from_ptr((functions.LLVMGetHostCPUName)()).to_owned();
            (name, CStr::from_ptr((functions.LLVMGetHostCPUFeatures)()).to_owned())
        };
        let major = u16::try_from(version[0]).unwrap_or(u16::MAX);
        Ok(Llvm { functions, major, text, host, _library: std::mem::ManuallyDrop::new(library) })
    }

    /// The major version of LLVM.
    pub(super) fn major(&self) -> u16 {
        self.major
    }

    /// The version and file of LLVM, for people.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// The major version in the name of a library: `libLLVM.so.22.1-rust-1.95.0-stable`, `libLLVM-17.so.1`.
fn major_in(path: &Path) -> u32 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits
        .split(|letter: char| !letter.is_ascii_digit())
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0)
}

/// The dynamic linker's text for the error.
fn whole(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The names of LLVM's targets for the machines that farjump knows.
const TARGETS: [(Machine, &str); 3] =
    [(Machine::X86_64, "X86"), (Machine::AARCH64, "AArch64"), (Machine::RISCV, "RISCV")];

/// Sets up the target of this machine, and those of others that this LLVM has: a target's program may
/// register code for them.
fn initialise(library: &Library) -> Result<(), String> {
    let mut has_own = false;
    for (machine, target) in TARGETS {
        let is_own = Some(machine) == Machine::native();
        match initialise_target(library, target) {
            Ok(()) => has_own |= is_own,
            Err(why) if is_own => return Err(why),
            Err(_) => {}
        }
    }
    if has_own { Ok(()) } else { Err("has no target for this machine".to_owned()) }
}

fn initialise_target(library: &Library, target: &str) -> Result<(), String> {
    for part in ["TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"] {
        let name = format!("LLVMInitialize{target}{part}\0");
        // SAFETY: LLVM's functions of these names take and return nothing, and register a target once.
        unsafe {
            let initialise = library.get::<unsafe extern "C" fn()>(name.as_bytes());
            let initialise = initialise.map_err(|_| format!("has no target for this machine ({target})"))?;
            initialise();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_from_the_library_name() {
        let majors =
            ["/a/libLLVM.so.22.1-rust-1.95.0-stable", "libLLVM.so.19.1", "libLLVM-17.so.1", "libLLVM.so"];
        assert_eq!(majors.map(|name| major_in(Path::new(name))), [22, 19, 17, 0]);
        assert!(NAMES.is_sorted_by_key(|name| std::cmp::Reverse(major_in(Path::new(name)))));
    }
}
