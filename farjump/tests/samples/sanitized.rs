//! `codec`, compiled with sanitizers.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::codec::{decompressed, hostile};

/// Compiles a program with AddressSanitizer and UndefinedBehaviorSanitizer. Their first finding ends the program.
fn compile(source: &Path, program: &Path) -> Output {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(package.join("../ifuncs/include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .output()
        .expect("there is a C compiler: the other tests need one too")
}

#[test]
fn no_payload_makes_codec_touch_a_byte_that_is_not_its_own() {
    if !farjump_tools::all_work(&["cc -fsanitize=address,undefined"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/sanitized_codec.c");
    let compiled = compile(&source, &program);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let mut runner = TestRunner::default();
    let payloads: Vec<Vec<u8>> =
        (0..1500).map(|_| hostile().new_tree(&mut runner).unwrap().current()).collect();
    let (mut input, mut expected) = (Vec::new(), Vec::new());
    for payload in &payloads {
        input.extend((payload.len() as u64).to_ne_bytes());
        input.extend(payload);
        match decompressed(payload) {
            Some(bytes) => {
                expected.extend((bytes.len() as i64).to_ne_bytes());
                expected.extend(bytes);
            }
            None => expected.extend((-1_i64).to_ne_bytes()),
        }
    }
    let file = folder.path().join("payloads");
    fs::write(&file, input).unwrap();
    let mut command = Command::new(program);
    // The search for leaks needs rights that containers remove.
    command.env("ASAN_OPTIONS", "detect_leaks=0").stdin(File::open(file).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == expected, "it answers something else than lz4_flex");
}
