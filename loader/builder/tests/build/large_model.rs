//! Addresses in instructions, as in code for the large code model. At every alignment, those of an image's own parts
//! are patched, and those of imports refused.

use std::ffi::c_void;
use std::fs;
use std::process::Command;

use farjump_builder::{Options, build};
use farjump_core::image::{ImageView, Place};
use farjump_tools::all_work;

use crate::fixture::{Fixture, Target, imports, linkers, works};

/// Payload routines for a function that assembly defines.
const ROUTINES: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\n";

/// `t_main` in `.ltext`: stores the word at the address of `symbol` at its arguments. The address is in an instruction,
/// `shift` bytes farther than usual.
fn assembly(symbol: &str, shift: usize) -> String {
    format!(
        ".section .ltext,\"axl\",@progbits\n.globl t_main\n.type t_main,@function\nt_main:\n\
         .skip {shift}, 0x90\nmovabs ${symbol}, %rax\nmovq (%rax), %rcx\nmovq %rcx, (%rdx)\nret\n\
         .size t_main, . - t_main\n\
         .section .lrodata,\"al\",@progbits\n.balign 8\nnumbers: .quad 1, 2, 0x123456789abcdef\n\
         .section .note.GNU-stack,\"\",@progbits\n"
    )
}

/// The options to build `inputs` with each linker. gcc: the assembler of clang 14 does not know `l`.
fn with_linkers(fixture: &Fixture, inputs: &[std::path::PathBuf], flags: &[&str]) -> Vec<Options> {
    linkers()
        .into_iter()
        .map(|linker| Options {
            linker: Some(linker.into()),
            cflags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            cc: Some("gcc".into()),
            ..fixture.options("t", inputs)
        })
        .collect()
}

#[test]
fn the_images_own_address_works_at_any_byte_of_an_instruction() {
    if !all_work(&["gcc"]) {
        return;
    }
    let mut offsets = [false; 8];
    for shift in 0..8 {
        let fixture = Fixture::new();
        let inputs =
            [fixture.write("routines.c", ROUTINES), fixture.write("t.s", &assembly("numbers + 16", shift))];
        let mut ids = Vec::new();
        for options in with_linkers(&fixture, &inputs, &[]) {
            let report = build(&options).unwrap();
            let view = ImageView::new_checked(&report.images[0].bytes).unwrap();
            let sites: Vec<_> = view.relatives().map(|relative| relative.site).collect();
            let [Place::Span1(site)] = sites[..] else { panic!("{sites:?}") };
            offsets[site as usize % 8] = true;
            let mut number = 0_u64;
            Target::new().run(&report, b"", &mut number);
            assert_eq!(number, 0x0123_4567_89ab_cdef, "{options:?}");
            ids.push(report.images[0].id);
        }
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    }
    assert_eq!(offsets, [true; 8]);
}

#[test]
fn an_import_address_in_an_instruction_is_refused_wherever_it_lies() {
    if !all_work(&["gcc"]) {
        return;
    }
    for shift in 0..8 {
        let fixture = Fixture::new();
        let inputs =
            [fixture.write("routines.c", ROUTINES), fixture.write("t.s", &assembly("elsewhere", shift))];
        for options in with_linkers(&fixture, &inputs, &[]) {
            let text = fixture.refusal(build(&options));
            assert!(text.contains("t.s(.ltext) has the address of `elsewhere` in an instruction"), "{text}");
            for advice in ["large code model", "-mcmodel=large", "-mcmodel=small -fPIC"] {
                assert!(text.contains(advice), "{text}");
            }
        }
    }
}

const C: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(t)
extern uint64_t of_target(uint64_t);
static const uint64_t table[] = { 5, 6, 7, 8 };
static uint64_t calls;
__attribute__((noinline)) static uint64_t look(const uint64_t *in, size_t at) { return in[at & 3] + calls++; }
FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)
{
    (void)payload;
    *(uint64_t *)args = CALL(look(table, size));
}
";

extern "C" fn of_target(number: u64) -> u64 {
    number * 10
}

#[test]
fn c_for_the_large_model_runs_and_its_imports_need_pic() {
    for compiler in ["gcc", "clang"] {
        if !works(compiler) {
            continue;
        }
        for (source, flags) in [
            (C.replace("CALL", ""), &["-mcmodel=large", "-fno-pic"][..]),
            (C.replace("CALL", "of_target"), &["-mcmodel=large", "-fPIC"]),
        ] {
            let fixture = Fixture::new();
            let input = fixture.write("t.c", &source);
            for options in with_linkers(&fixture, &[input], flags) {
                let options = Options { cc: Some(compiler.to_owned()), ..options };
                let report = build(&options).unwrap_or_else(|error| panic!("{compiler} {flags:?}: {error}"));
                let mut target = Target::offering("of_target", of_target as *const c_void);
                let mut number = 0_u64;
                target.run(&report, b"12", &mut number);
                target.run(&report, b"12", &mut number);
                let factor = if imports(&report.images[0].bytes).is_empty() { 1 } else { 10 };
                assert_eq!(number, factor * (7 + 1), "{compiler} {flags:?}");
            }
        }
        let fixture = Fixture::new();
        let input = fixture.write("t.c", &C.replace("CALL", "of_target"));
        for options in with_linkers(&fixture, &[input], &["-mcmodel=large", "-fno-pic"]) {
            let text = fixture.refusal(build(&Options { cc: Some(compiler.to_owned()), ..options }));
            assert!(text.contains(" has the address of `of_target` in an instruction"), "{compiler}: {text}");
        }
    }
}

#[test]
fn a_packed_structure_points_into_the_image_but_at_no_import() {
    let source = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\nextern int elsewhere; static int own = 7;\n\
         __attribute__((used)) static struct __attribute__((packed)) { char c; int *to; } odd = { 1, &WHERE };\n\
         FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)\n\
         { (void)payload, (void)size; odd.c++; own++; *(int *)args = *odd.to; }\n";
    let fixture = Fixture::new();
    let report = fixture.c("t", &source.replace("WHERE", "own")).unwrap();
    let mut number = 0_i32;
    Target::new().run(&report, b"", &mut number);
    assert_eq!(number, 8);
    let fixture = Fixture::new();
    let text = fixture.refusal(fixture.c("t", &source.replace("WHERE", "elsewhere")));
    assert!(text.contains("has the address of `elsewhere`") && text.contains("do not pack"), "{text}");
}

/// Compiles a function with Numba, whose just-in-time compiler uses the large model, to `f.o`. Writes its name to
/// standard output.
const NUMBA: &str = "
import numpy, sys
from numba import njit, types
from numba.core import types as core
TABLE = numpy.arange(100, dtype=numpy.float64)
@njit([types.float64(types.CPointer(types.float64), types.int64)], error_model='numpy', boundscheck=False,
      _nrt=False, no_cfunc_wrapper=False, no_cpython_wrapper=True)
def f(values, count):
    total = 0.0
    for i in range(count):
        total += values[i] * TABLE[(i * 7) % 100]
    return total
library = f.overloads[f.signatures[0]].library
open(sys.argv[1], 'wb').write(library._get_compiled_object())
print(f.overloads[f.signatures[0]].fndesc.llvm_cfunc_wrapper_name)
";

#[test]
fn a_function_compiled_by_numba_runs() {
    let python = std::env::var_os("FARJUMP_PYTHON").unwrap_or_else(|| "python3".into());
    let has_numba = Command::new(&python).args(["-c", "import numba"]).output();
    if !has_numba.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python:?} has no Numba (name another one in FARJUMP_PYTHON)");
        return;
    }
    let fixture = Fixture::new();
    let (script, object) = (fixture.write("f.py", NUMBA), fixture.path("f.o"));
    let output = Command::new(&python).arg(script).arg(&object).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = String::from_utf8(output.stdout).unwrap();
    let source = format!(
        "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\n\
         extern double f(const double *values, int64_t count) __asm__(\"{}\");\n\
         FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)\n\
         {{ *(double *)args = f(payload, (int64_t)(size / 8)); }}\n",
        name.trim()
    );
    let inputs = [fixture.write("t.c", &source), object];
    for options in with_linkers(&fixture, &inputs, &[]) {
        let report = build(&options).unwrap_or_else(|error| panic!("{error}"));
        let values: Vec<u8> = (0..50).flat_map(|number: u8| f64::from(number).to_le_bytes()).collect();
        let expected: f64 = (0..50_u32).map(|number| f64::from(number * (number * 7 % 100))).sum();
        let mut sum = 0.0_f64;
        Target::new().run(&report, &values, &mut sum);
        assert!((sum - expected).abs() < 1e-6, "{sum} {expected}");
    }
    assert!(fs::exists(fixture.path("libt.so")).unwrap());
}
