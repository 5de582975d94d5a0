//! The samples in other languages than C and Rust, as native code and as bitcode. Both replies are compared with
//! results computed here. Languages whose compiler is missing are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use farjump_tools::{Tool, all_work};

use crate::workbench::{Workbench, finish};

fn sample(path: &str) -> String {
    format!("{}/../ifuncs/samples/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a compiler in the workbench's folder.
fn compile(bench: &Workbench, command: &[&str]) {
    let mut compiler = Command::new(command[0]);
    compiler.args(&command[1..]).current_dir(bench.path("."));
    // Zig keeps what it has compiled in a folder of its own.
    compiler.env("ZIG_GLOBAL_CACHE_DIR", bench.path("zig")).env("ZIG_LOCAL_CACHE_DIR", bench.path("zig"));
    finish(&mut compiler).worked();
}

/// Checks the replies of a library to targets that take native code, and then those that prefer bitcode.
fn replies(bench: &Workbench, library: &Path, args: &[u8], expected: &str, has_bitcode: bool) {
    bench.write("args", args);
    for (options, form) in [(&[][..], "x86_64"), (&["--bitcode=prefer"], "bitcode")] {
        if form == "bitcode" && !has_bitcode {
            continue;
        }
        let serving = bench.serve(options);
        let replied =
            bench.inject(library, &["--args-file", "args", "--format", "u64", "--repeat", "10"]).worked();
        assert_eq!(replied.text().trim(), expected, "{form}");
        let store = bench.json(["store", "--to", &bench.address(), "--json"]);
        let platform = store["images"][0]["platform"].as_str().expect("a platform");
        assert_eq!(platform.contains("bitcode"), form == "bitcode", "{platform}");
        serving.stop().worked();
    }
}

/// Returns the numbers for the samples `sum`, and their sum.
fn numbers() -> (Vec<u8>, String) {
    let numbers = (0..5000_u32).map(|number| number.wrapping_mul(2_654_435_761));
    let sum: u64 = numbers.clone().map(u64::from).sum();
    (numbers.flat_map(u32::to_le_bytes).collect(), sum.to_string())
}

fn library(bench: &Workbench, inputs: &[&str], more: &[&str]) -> PathBuf {
    bench.run([&["build"], inputs, &["--name", "sum", "-o", "libsum.so"], more].concat()).worked();
    bench.path("libsum.so")
}

#[test]
fn cxx_in_both_forms_says_the_same() {
    if !all_work(&["clang", "clang++"]) {
        return;
    }
    let bench = Workbench::new();
    let library = library(&bench, &[&sample("cpp/sum.cpp")], &["--bitcode", "--cc", "clang"]);
    let (args, sum) = numbers();
    replies(&bench, &library, &args, &sum, true);
    bench.is_clean();
}

#[test]
fn zig_in_both_forms_says_the_same() {
    let zig: &[&str] = match Tool::tried("zig cc") {
        Ok(_) => &["zig"],
        Err(_) if all_work(&["python3 -m ziglang cc"]) => &["python3", "-m", "ziglang"],
        Err(_) => return,
    };
    let bench = Workbench::new();
    let source = sample("zig/sum.zig");
    let options = ["build-obj", &source, "-O", "ReleaseSmall", "-fPIC", "-fstrip", "-mcpu=baseline"];
    compile(&bench, &[zig, &options, &["-femit-bin=sum.o", "-femit-llvm-bc=sum.bc"]].concat());
    let library = library(&bench, &["sum.o", "sum.bc"], &["--bitcode"]);
    let shown = bench.json(["inspect", "libsum.so", "--json"]);
    assert!(shown["images"][1]["llvm"].as_u64() >= Some(19), "{shown}");
    let (args, sum) = numbers();
    replies(&bench, &library, &args, &sum, true);
    bench.is_clean();
}

#[test]
fn fortran_in_native_form_and_by_flang_in_both_says_the_same() {
    let bench = Workbench::new();
    let source = sample("fortran/sum.f90");
    let (args, sum) = numbers();
    if all_work(&["gfortran"]) {
        compile(&bench, &["gfortran", "-O2", "-fPIC", "-c", &source, "-o", "sum.o"]);
        replies(&bench, &library(&bench, &["sum.o"], &[]), &args, &sum, false);
    }
    let flangs = ["flang-new-19", "flang-new", "flang"];
    let Some(flang) = flangs.into_iter().find(|flang| Tool::tried(flang).is_ok()) else {
        all_work(&["flang"]);
        return;
    };
    compile(&bench, &[flang, "-O2", "-fPIC", "-c", &source, "-o", "sum.o"]);
    compile(&bench, &[flang, "-O2", "-fPIC", "-c", "-emit-llvm", &source, "-o", "sum.bc"]);
    replies(&bench, &library(&bench, &["sum.o", "sum.bc"], &["--bitcode"]), &args, &sum, true);
    bench.is_clean();
}

/// Returns rows of four numbers, and a query that is nearest to one of them, packed as `numba_ifunc.py` says.
fn rows() -> Vec<u8> {
    let rows: Vec<f32> =
        (0..4000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0).collect();
    let query: Vec<f32> = rows[1234 * 2..][..4].iter().map(|value| value + 1e-6).collect();
    let pack = |values: &[f32]| {
        [
            &(values.len() as u64).to_le_bytes()[..],
            &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(),
        ]
        .concat()
    };
    [pack(&rows), pack(&query)].concat()
}

const SIGNATURE: &str = "int64(float32[::1], float32[::1])";

#[test]
fn python_code_runs_without_python_and_reports_its_exceptions() {
    if let Err(why) = Tool::tried_on("python3", "import numba") {
        return println!("skipped: {why}");
    }
    let bench = Workbench::new();
    let script = format!("{}/../ifuncs/python/numba_ifunc.py", env!("CARGO_MANIFEST_DIR"));
    let numba = |function: &str, signature: &str| {
        let mut python = Command::new("python3");
        python.args([&*script, function, signature, "-o", "libmade.so"]).current_dir(bench.path("."));
        finish(python.args(["--farjump", env!("CARGO_BIN_EXE_farjump")]))
    };
    let nearest = format!("{}:nearest", sample("python/nearest.py"));
    numba(&nearest, SIGNATURE).worked();
    let made = bench.path("libmade.so");
    replies(&bench, &made, &rows(), "617", true);
    let serving = bench.serve(&[]);
    let call = |args: Vec<u8>| {
        bench.write("args", args);
        bench.inject(&made, &["--args-file", "args"])
    };
    let none = [&0_u64.to_le_bytes()[..], &0_u64.to_le_bytes()].concat();
    call(none).fails(3, &["ValueError: there are no rows of that length (line 11)"]);
    // The target does not trust the lengths in a payload.
    for cut in [0, 7, 8, 100, rows().len() - 1] {
        call(rows()[..cut].to_vec()).fails(3, &["the payload is shorter than its arguments"]);
    }
    let mut wild = rows();
    wild[..8].copy_from_slice(&(u64::MAX / 4).to_le_bytes());
    call(wild).fails(3, &["the payload is shorter than its arguments"]);
    serving.stop().worked();

    // The module packs arguments as the test does.
    let pack = "import sys, array; sys.path.insert(0, sys.argv[1]); import numba_ifunc\n\
        sys.stdout.buffer.write(numba_ifunc.pack('none(float32[::1], int16)', array.array('f', [1.5]), -2))";
    let folder = Path::new(&script).parent().expect("it lies in a folder");
    let packed = finish(Command::new("python3").args(["-c", pack]).arg(folder)).worked();
    assert_eq!(
        packed.out,
        [&1_u64.to_le_bytes()[..], &1.5_f32.to_le_bytes(), &[0; 4], &(-2_i16).to_le_bytes(), &[0; 6]]
            .concat()
    );

    bench.write(
        "wrong.py",
        "import numpy\ndef makes(x):\n    return numpy.zeros(3)[0] + x[0]\ndef says(x):\n    print(x[0])\n    return 1.0\n\
         def fine(x):\n    return x[0]\ndef divides(x):\n    return 1.0 / x[0]\n",
    );
    let signature = "float64(float64[::1])";
    for (function, signature, words) in [
        ("wrong.py:says", signature, "uses Python objects"),
        ("wrong.py:makes", signature, "`makes`"),
        ("wrong.py:fine", "float64(float64[:])", "write it as float64[::1]"),
        ("wrong.py:fine", "float64(float64[::1], int64)", "does not take the 2 arguments"),
        ("wrong.py:fine", "float64[::1](float64[::1])", "it can be a number, or none"),
        ("wrong.py:other", signature, "has no function `other`"),
        ("wrong.py", signature, "write FILE.py:NAME"),
    ] {
        numba(function, signature).fails(1, &[words]);
    }
    // As njit has it by default.
    numba("wrong.py:divides", signature).worked();
    let serving = bench.serve(&[]);
    bench.write("args", [&1_u64.to_le_bytes()[..], &0_f64.to_le_bytes()].concat());
    bench.inject(&made, &["--args-file", "args"]).fails(3, &["ZeroDivisionError: division by zero"]);
    serving.stop().worked();
    bench.is_clean();
}
