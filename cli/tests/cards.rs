//! The commands of `docs/guide/cards.md`: a target on a card, and a source on its host, between which there is a network.
//!
//! The card's programs are this machine's. `cargo xtask test emulated` installs those for aarch64, and runs the target by way of
//! the emulator.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use farjump_fixtures::namespaces::{Namespace, Namespaces};
use farjump_tools::all_work;
use serde_json::Value;

use crate::tcp_key::make_key;
use crate::workbench::{Workbench, finish, start_target};

/// Variables with the card's `farjump`, and the program that runs it.
const FARJUMP: &str = "FARJUMP_TEST_CARD";
const RUNNER: &str = "FARJUMP_TEST_CARD_RUNNER";

const CARD: Namespace = Namespace::Right;
const HOST: Namespace = Namespace::Left;

/// Counts the lines of the target's file.
const LINES: &str = "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(lines)\n\
    FARJUMP_IFUNC void lines_main(void *p, size_t n, void *a) { (void)p; (void)n; const struct farjump_data *data = a;\n\
    uint64_t lines = 0; for (size_t i = 0; i < data->len; i++) lines += data->bytes[i] == '\\n';\n\
    farjump_reply(&lines, sizeof lines); }\n";

/// The card's programs.
struct Card {
    farjump: PathBuf,
    runner: Option<OsString>,
    /// The architecture, as in the names of platforms.
    architecture: &'static str,
}

impl Card {
    fn find() -> Card {
        match env::var_os(FARJUMP) {
            Some(farjump) => {
                Card { farjump: farjump.into(), runner: env::var_os(RUNNER), architecture: "aarch64" }
            }
            None => Card {
                farjump: env!("CARGO_BIN_EXE_farjump").into(),
                runner: None,
                architecture: env::consts::ARCH,
            },
        }
    }
}

/// Returns a command of one side, with these words before it.
fn at(side: Namespace, namespaces: &Namespaces, bench: &Workbench, words: &[OsString]) -> Command {
    let launcher = namespaces.launcher(side);
    let mut command = bench.program(&launcher[0]);
    command.args(&launcher[1..]).args(words);
    command
}

/// Returns the image of this name in a target's store.
fn stored(store: &Value, name: &str) -> Value {
    let images = store["images"].as_array().expect("a list");
    images.iter().find(|image| image["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {store}"))
}

#[test]
fn a_card_runs_native_code_and_bitcode_over_sealed_tcp() {
    if !all_work(&["clang", "ld.lld"]) {
        return;
    }
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(why) => return println!("skipped: {why}"),
    };
    let (bench, card) = (Workbench::new(), Card::find());
    make_key(&bench, "card.key");
    bench.write("table", "one\ntwo\nthree\n".repeat(1000));
    bench.write("lines.c", LINES);
    // One image for each of both machines.
    let targets = ["x86_64", "aarch64"].map(|machine| format!("--target={machine}-unknown-linux-gnu"));
    let build = |input: &str, output: &str, more: &[&str]| {
        let base = ["build", input, "--cc", "clang", "-o", output, &targets[0], &targets[1]];
        bench.run([&base[..], more].concat()).worked();
    };
    build("lines.c", "liblines.so", &[]);

    let listen = format!("tcp:{}:0", CARD.address());
    let mut words: Vec<OsString> = card.runner.clone().into_iter().collect();
    words.push(card.farjump.clone().into());
    words.extend(
        ["serve", "--listen", &listen, "--key-file", "card.key", "--data", "table"].map(OsString::from),
    );
    words.extend(["--handshake-timeout", "60s"].map(OsString::from));
    let takes_bitcode = !crate::bitcode::llvms().is_empty();
    if takes_bitcode {
        words.push("--bitcode=prefer".into());
    }
    let mut serve = at(CARD, &namespaces, &bench, &words);
    // The emulator starts no program for aarch64: this machine's compiles for it.
    serve.env("FARJUMP_COMPILER", crate::bitcode::COMPILER);
    let (serving, address) = start_target(&mut serve);
    let farjump = |words: &[&str]| {
        let own: Vec<OsString> =
            [env!("CARGO_BIN_EXE_farjump")].iter().chain(words).map(OsString::from).collect();
        finish(&mut at(HOST, &namespaces, &bench, &own)).worked()
    };
    let to = ["--to", &address, "--key-file", "card.key"];
    let path = farjump(&[&["transports", "--json"], &to[..]].concat()).json();
    assert_eq!(path["transport"], "tcp", "{path}");
    let inject = |library: &str| {
        let done = farjump(&[&["inject", library, "--format", "u64", "--repeat", "3"], &to[..]].concat());
        assert_eq!(done.text().trim(), "3000", "{library}");
    };
    inject("liblines.so");
    let store = farjump(&[&["store", "--json"], &to[..]].concat()).json();
    let platform = stored(&store, "lines")["platform"].as_str().unwrap_or_default().to_owned();
    assert!(platform.starts_with(card.architecture), "{platform}");
    if !takes_bitcode {
        println!("skipped: there is no LLVM 17 or newer");
        return drop(serving.stop().worked());
    }
    let text = LINES.replace("lines_main", "count_main").replace("ARGS(lines)", "ARGS(count)");
    bench.write("count.c", text);
    build("count.c", "libcount.so", &["--bitcode"]);
    inject("libcount.so");
    let store = farjump(&[&["store", "--json"], &to[..]].concat()).json();
    let platform = stored(&store, "count")["platform"].as_str().unwrap_or_default().to_owned();
    assert!(platform.starts_with(card.architecture) && platform.contains("bitcode"), "{platform}");
    serving.stop().worked();
}
