//! Files that are cut short, before and while a process uses them.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::workbench::{Done, Process, Workbench, finish, start_target};

/// Replies the result of the target's library.
const QUOTE: &str = "extern int price(void);
    FARJUMP_COPY_ARGS(quote)
    FARJUMP_IFUNC void quote_main(void *payload, size_t size, void *args)
    { int found = price(); (void)payload; (void)size; (void)args; farjump_reply(&found, sizeof found); }";

fn cut(file: &Path, len: u64) {
    OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(len)).expect("it can be cut");
}

/// Returns the path of a file with the first half of the library.
fn half(bench: &Workbench, library: &Path) -> String {
    let whole = fs::read(library).expect("it was built");
    let path = bench.write("libcut.so", &whole[..whole.len() / 2]);
    path.to_str().expect("a plain path").to_owned()
}

#[test]
fn every_command_refuses_a_truncated_library_and_the_target_survives() {
    let bench = Workbench::new();
    let quote = bench.library("quote", QUOTE);
    let price = bench.plain_library("price", "int price(void) { return 99; }");
    let serving = bench.serve(&["--allow-export", "--export-library", price.to_str().expect("a plain path")]);
    let other = ["serve", "--listen", "unix:other"];
    let library = half(&bench, &price);
    let refused = ["refused: cannot load `libcut.so`: it is cut short", "build or copy it again"];
    bench.run(["export", &library, "--to", &bench.address()]).fails(3, &refused);
    let refused = [&*library, "it is cut short", "build or copy it again"];
    bench.run([&other[..], &["--export-library", &library]].concat()).fails(1, &refused);
    let library = half(&bench, &quote);
    let refused = [&*library, "it is cut short"];
    bench.run([&other[..], &["--local", &library]].concat()).fails(1, &refused);
    bench.inject(library.as_ref(), &[]).fails(1, &refused);
    assert_eq!(bench.inject(&quote, &[]).worked().out, 99_i32.to_ne_bytes());
    serving.stop().worked();
}

#[test]
fn export_and_inspect_refuse_pipes_and_folders_without_a_wait() {
    let bench = Workbench::new();
    finish(bench.program("mkfifo").arg("libpipe.so")).worked();
    let serving = bench.serve(&["--allow-export"]);
    let address = bench.address();
    for library in ["./libpipe.so", "tmp"] {
        let no_file = ["a directory, a device or a pipe"];
        bench.run(["export", library, "--to", &address]).fails(1, &no_file);
        bench.run(["inspect", library]).fails(1, &no_file);
    }
    serving.stop().worked();
}

/// Replies the sum of the bytes of the target's data.
const TOTAL: &str = "FARJUMP_COPY_ARGS(total)
    FARJUMP_IFUNC void total_main(void *payload, size_t size, void *args)
    {
        const struct farjump_data *data = args;
        unsigned long sum = 0;
        (void)payload; (void)size;
        for (size_t at = 0; at < data->len; at++) sum += data->bytes[at];
        farjump_reply(&sum, sizeof sum);
    }";

/// Serves with a data file, cuts it meanwhile, and returns the target's output.
fn ended_by_data(bench: &Workbench) -> Done {
    let total = bench.library("total", TOTAL);
    let data = bench.write("data", vec![1; 10_000]);
    let serving = bench.serve(&["--data", data.to_str().expect("a plain path")]);
    assert_eq!(bench.inject(&total, &[]).worked().out, 10_000_u64.to_ne_bytes());
    cut(&data, 4096);
    bench.inject(&total, &[]).fails(5, &["is gone"]);
    serving.finish()
}

#[test]
fn a_target_that_dies_of_truncated_mapped_data_names_the_file() {
    let bench = Workbench::new();
    let done = ended_by_data(&bench);
    assert_eq!(done.code, 128 + libc::SIGBUS, "{}", done.err);
    let path = bench.path("data");
    let expected = format!(
        ": the data file `{}` was cut short while it was mapped, and has no byte 0x1000 any more; write a new file and \
         rename it, and start the target again\n",
        path.display()
    );
    assert!(done.err.contains("farjump: SIGBUS (address 0x"), "{}", done.err);
    assert!(done.err.contains("in ifunc `total`") && done.err.ends_with(&expected), "{}", done.err);
}

#[test]
fn gdb_knows_the_functions_and_path_of_an_exported_library() {
    if !farjump_tools::all_work(&["gdb"]) {
        return;
    }
    let _alone = crate::workbench::alone();
    let bench = Workbench::new();
    let quote = bench.library("quote", QUOTE);
    let source = "#include <stdio.h>
        volatile int released;
        __attribute__((noinline)) int price(void)
        {
            puts(\"in\");
            while (!released) ;
            return 99;
        }";
    let price = bench.plain_library("price", source);
    let (serving, address) = start_target(
        bench.serving(&["--export-library", price.to_str().expect("a plain path")]).env("STDBUF", "L"),
    );
    let injecting = Process::start(&mut bench.injecting(&quote, &address, &["--timeout", "50s"]));
    assert_eq!(serving.line(), "in");
    let mut gdb = bench.program("gdb");
    gdb.args(["--batch", "-nx", "-p", &serving.pid().to_string()]);
    for order in ["info sharedlibrary", "thread apply all -q backtrace", "set var *(int *)&released = 1"] {
        gdb.args(["-ex", order]);
    }
    let said = finish(&mut gdb);
    if !crate::workbench::gdb_attached(&said) {
        return;
    }
    let text = said.text();
    let path = price.to_str().expect("a plain path");
    assert!(text.lines().any(|line| line.contains("Yes") && line.ends_with(path)), "{text}{}", said.err);
    assert!(text.contains(" price ("), "{text}{}", said.err);
    assert_eq!(injecting.finish().worked().out, 99_i32.to_ne_bytes());
    serving.stop().worked();
}
