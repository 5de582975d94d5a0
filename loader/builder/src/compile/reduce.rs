//! Reduces the bitcode of a Rust program to the code and data that `NAME_main` reaches, in the form of thin LTO, by
//! rustc's own LLVM.
//!
//! rustc merges the modules of all crates only when it links, and writes all of core. Its own LLVM is as new as the
//! bitcode that it writes, and is installed with rustc.

use std::ffi::{c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::compile::rust::program;
use crate::error::BuildError;

type Ref = *mut c_void;

/// `LLVMInternalLinkage`.
const INTERNAL: c_int = 8;
/// Linkages of values that stay as they are: available externally, appending, internal, private, common.
const OTHERS: [c_int; 5] = [1, 7, INTERNAL, 9, 14];

/// The libraries of LLVM in the Rust toolchain of `rustc`, usually one.
pub fn rust_llvms() -> Vec<PathBuf> {
    let asked = program("RUSTC", "rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = asked.and_then(|said| String::from_utf8(said.stdout).ok());
    let folder = sysroot.map(|sysroot| Path::new(sysroot.trim()).join("lib"));
    let files = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_llvm = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("libLLVM.so."))
    };
    files.map(|file| file.path()).filter(is_llvm).collect()
}

/// Drops the code and data that the function `main` does not reach from the module in `bitcode`, which rustc wrote.
///
/// # Errors
/// There is no LLVM beside rustc, or it does not read rustc's bitcode.
pub(crate) fn reduce(bitcode: &[u8], main: &str) -> Result<Vec<u8>, BuildError> {
    let path =
        rust_llvms().into_iter().next().ok_or(BuildError::NoRustLlvm { problem: "is missing".to_owned() })?;
    let failed = |problem: String| BuildError::NoRustLlvm { problem };
    // SAFETY: it is the LLVM of the Rust toolchain in use, whose constructors only set up LLVM.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| failed(format!("cannot be opened: {error}")))?;
    // SAFETY: LLVM's C interface is stable: functions of these names have these types (llvm-c/Core.h, BitReader.h,
    // BitWriter.h, Transforms/PassBuilder.h). Every object is LLVM's own; strings end with a zero byte.
    let reduced = unsafe { reduce_by(&library, bitcode, main) };
    // Resources that LLVM has started stay until the process ends.
    std::mem::forget(library);
    reduced.map_err(failed)
}

/// # Safety
/// `library` must be LLVM, 17 or newer.
unsafe fn reduce_by(library: &Library, bitcode: &[u8], main: &str) -> Result<Vec<u8>, String> {
    /// A function of LLVM's.
    macro_rules! function {
        ($name:literal: fn($($argument:ty),*) $(-> $result:ty)?) => {{
            let name = concat!($name, "\0").as_bytes();
            // SAFETY: `library` is LLVM, whose function of this name has this type (see Safety).
            let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(name) };
            *found.map_err(|error| format!("lacks {}: {error}", $name))?
        }};
    }
    let new_context = function!("LLVMContextCreate": fn() -> Ref);
    let drop_context = function!("LLVMContextDispose": fn(Ref));
    let buffer = function!("LLVMCreateMemoryBufferWithMemoryRangeCopy": fn(*const c_char, usize, *const c_char) -> Ref);
    let parse = function!("LLVMParseBitcodeInContext2": fn(Ref, Ref, *mut Ref) -> c_int);
    let lists = [
        (function!("LLVMGetFirstFunction": fn(Ref) -> Ref), function!("LLVMGetNextFunction": fn(Ref) -> Ref)),
        (function!("LLVMGetFirstGlobal": fn(Ref) -> Ref), function!("LLVMGetNextGlobal": fn(Ref) -> Ref)),
    ];
    let is_declaration = function!("LLVMIsDeclaration": fn(Ref) -> c_int);
    let name_of = function!("LLVMGetValueName2": fn(Ref, *mut usize) -> *const u8);
    let linkage = function!("LLVMGetLinkage": fn(Ref) -> c_int);
    let set_linkage = function!("LLVMSetLinkage": fn(Ref, c_int));
    let set_visibility = function!("LLVMSetVisibility": fn(Ref, c_int));
    let set_comdat = function!("LLVMSetComdat": fn(Ref, Ref));
    let options = function!("LLVMCreatePassBuilderOptions": fn() -> Ref);
    let run = function!("LLVMRunPasses": fn(Ref, *const c_char, Ref, Ref) -> Ref);
    let write = function!("LLVMWriteBitcodeToMemoryBuffer": fn(Ref) -> Ref);
    let start = function!("LLVMGetBufferStart": fn(Ref) -> *const u8);
    let len = function!("LLVMGetBufferSize": fn(Ref) -> usize);
    // As clang does for `-flto=thin`: the passes that do not depend on the CPU. Much of core is dead only after them.
    let passes = c"globaldce,thinlto-pre-link<O2>,globaldce,strip-dead-prototypes";
    // SAFETY: this function's caller guarantees the types; each object is used as its header says, and none after the
    // context goes.
    unsafe {
        let context = new_context();
        let mut module = ptr::null_mut();
        let bytes = buffer(bitcode.as_ptr().cast(), bitcode.len(), c"rust".as_ptr());
        if parse(context, bytes, &raw mut module) != 0 {
            return Err("does not read what rustc wrote".to_owned());
        }
        let mut has_main = false;
        for (first, next) in lists {
            let mut value = first(module);
            while !value.is_null() {
                let mut size = 0;
                let name = name_of(value, &raw mut size);
                let name = std::slice::from_raw_parts(name, size);
                has_main |= name == main.as_bytes();
                let stays = name == main.as_bytes()
                    || name.starts_with(b"llvm.")
                    || is_declaration(value) != 0
                    || OTHERS.contains(&linkage(value));
                if !stays {
                    set_comdat(value, ptr::null_mut());
                    set_visibility(value, 0);
                    set_linkage(value, INTERNAL);
                }
                value = next(value);
            }
        }
        if !has_main {
            return Err(format!("finds no `{main}` in what rustc wrote"));
        }
        if !run(module, passes.as_ptr(), ptr::null_mut(), options()).is_null() {
            return Err("cannot reduce what rustc wrote".to_owned());
        }
        let written = write(module);
        let reduced = std::slice::from_raw_parts(start(written), len(written)).to_vec();
        drop_context(context);
        Ok(reduced)
    }
}
