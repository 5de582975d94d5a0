//! The program as its users run it, on tables that are whole, cut and damaged.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use farjump_fixtures::process::{Done, Process, end_with_this_thread, finish};
use farjump_fixtures::watchdog::Watchdog;
use farjump_scan_example::local::{Sum, below};
use farjump_scan_example::table::{Geometry, UNIT, make};
use farjump_tools::all_work;
use rustix::process::Signal;
use tempfile::TempDir;

/// Blocks of a table.
const BLOCKS: u64 = 12;

fn scan(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scan"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A folder with a table, its target, and the target's address.
struct Served {
    folder: TempDir,
    table: PathBuf,
    process: Process,
    address: String,
}

impl Served {
    /// `None` without a C compiler.
    fn start(blocks: u64, is_variable: bool) -> Option<Served> {
        Served::of(blocks, is_variable, |_| ())
    }

    /// Does the same for a table that `change` has changed.
    fn of(blocks: u64, is_variable: bool, change: impl FnOnce(&mut File)) -> Option<Served> {
        if !all_work(&["cc"]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("table");
        make(&table, blocks, is_variable, 7).unwrap();
        change(&mut File::options().read(true).write(true).open(&table).unwrap());
        let socket = format!("unix:{}", folder.path().join("socket").display());
        let args = ["serve", table.to_str().unwrap(), "--listen", &socket, "--memory", "32"];
        let (process, address) = started(&mut scan(&args));
        Some(Served { folder, table, process, address })
    }

    fn run(&self, more: &[&str]) -> Done {
        finish(&mut scan(&[&["run", "--to", &self.address], more].concat()))
    }

    /// Writes a predicate that is no file of the example, and returns its path.
    fn predicate(&self, text: &str) -> String {
        let path = self.folder.path().join("mine.c");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Returns the bytes of files that the target has in memory.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// Starts a target, and returns its address.
fn started(command: &mut Command) -> (Process, String) {
    let process = Process::start(command);
    let line = process.line();
    let address = line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (process, address)
}

/// Returns the sum of the rows that a scan of the file has to keep, and the number of records.
fn expected(table: &Path, limit: u64) -> (Sum, u64) {
    let bytes = fs::read(table).unwrap();
    let geometry = Geometry::read(&bytes[..], bytes.len() as u64).unwrap();
    let (mut sum, mut records) = (Sum::default(), 0);
    for block in 0..geometry.blocks {
        let from = geometry.offset(block) as usize;
        let block = &bytes[from..from + geometry.block_len as usize];
        records += u64::from(u32::from_le_bytes(block[4..8].try_into().unwrap()));
        below(block, &geometry, limit, |row| sum.add(row).unwrap()).unwrap();
    }
    (sum, records)
}

/// Returns the rows that a run has printed, as a sum.
fn printed(done: &Done) -> Sum {
    let mut sum = Sum::default();
    let rows = done.text().lines().filter(|line| line.len() == 32 && !line.contains(' '));
    for row in rows {
        let byte = |at: usize| u8::from_str_radix(&row[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..32).step_by(2).map(byte).collect();
        sum.add(&bytes).unwrap();
    }
    sum
}

#[test]
fn a_scan_yields_a_local_readers_rows_at_any_credit() {
    for is_variable in [false, true] {
        let Some(served) = Served::start(BLOCKS, is_variable) else { return };
        for (limit, credit) in [("0", "8"), ("1000", "1"), ("250000", "3"), ("1000000", "64")] {
            let done = served.run(&["--argument", limit, "--credit", credit, "--rows"]).worked();
            let (sum, records) = expected(&served.table, limit.parse().unwrap());
            assert_eq!(printed(&done), sum);
            let bytes = sum.rows * 16;
            let last = format!("{} of {records} records, {bytes} B, by shm", sum.rows);
            assert_eq!(done.text().lines().last(), Some(&*last));
        }
    }
}

#[test]
fn predicates_of_ones_own_put_what_they_choose() {
    let Some(served) = Served::start(2, true) else { return };
    // The last eight letters of records of an odd length.
    let mine = served.predicate(
        "#include \"scan.h\"\n\
         static int mine_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)\n\
         { (void)args; (void)args_len; if (len % 2 == 0) return 0; scan_put(out, record + len - 8, 8); return 1; }\n\
         SCAN(mine)\n",
    );
    let done = served.run(&["--predicate", &mine, "--rows"]).worked();
    let rows: Vec<_> = done.text().lines().filter(|line| line.len() == 16).collect();
    assert!(rows.len() > 2000, "{}", rows.len());
    assert!(rows.iter().all(|row| (0..16).step_by(2).all(|at| row[at..].starts_with(['6', '7']))));
    // All of each record, and more than a row may have.
    let all = served.predicate(
        "#include \"scan.h\"\n\
         static int mine_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)\n\
         { (void)args; (void)args_len; scan_put(out, record, len); return 1; }\nSCAN(mine)\n",
    );
    let done = served.run(&["--predicate", &all]).worked();
    let (_, records) = expected(&served.table, 0);
    assert!(done.text().starts_with(&format!("{records} of {records} records, ")), "{}", done.text());
    let long = served.predicate(
        "#include \"scan.h\"\n\
         static int mine_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)\n\
         { (void)args; (void)args_len; (void)len; for (int i = 0; i < 3000; i++) scan_put(out, record, 8); return 1; }\nSCAN(mine)\n",
    );
    served.run(&["--predicate", &long]).fails(1, &["block 0", "more than 16384 bytes"]);
    for (first, second, fits) in
        [(16384, 0, true), (16380, 4, true), (16380, 5, false), (4, 16384, false), (16385, 0, false)]
    {
        let two = served.predicate(&format!(
            "#include \"scan.h\"\n\
             static int mine_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)\n\
             {{ static const uint8_t bytes[20000]; uint64_t key; memcpy(&key, record, 8); (void)len; (void)args; (void)args_len;\n\
             if (key >= 1000) return 0;\n\
             scan_put(out, bytes, {first}); scan_put(out, bytes, {second}); return 1; }}\nSCAN(mine)\n"
        ));
        let done = served.run(&["--predicate", &two]);
        assert_eq!(done.code == 0, fits, "{first} and {second}: {}", done.err);
    }
    served.run(&["--argument", "1000"]).worked();
}

#[test]
fn a_target_scans_an_oversized_table_for_several_sources_within_its_memory() {
    const MEMORY: u64 = 32 << 20;
    let Some(served) = Served::start(96, false) else { return };
    let (sum, records) = expected(&served.table, 1000);
    // One after another, as each is elsewhere in the table.
    let args = ["run", "--to", &served.address, "--credit", "2", "--pause", "2"];
    let sources: Vec<_> = (0..4).map(|_| Process::start(&mut scan(&args))).collect();
    let mut most = 0;
    for source in sources {
        most = most.max(served.resident());
        let done = source.finish().worked();
        assert!(done.text().starts_with(&format!("{} of {records} records", sum.rows)), "{}", done.text());
    }
    most = most.max(served.resident());
    // The program and its libraries are files, too, and a segment is dropped after the next one was read.
    assert!(most < MEMORY + (24 << 20), "{most} bytes");
    served.process.stop().worked();
}

#[test]
fn a_stopped_source_delays_no_other_and_finishes_when_continued() {
    let Some(served) = Served::start(BLOCKS, false) else { return };
    let args = ["run", "--to", &served.address, "--argument", "1000000", "--pause", "5", "--rows"];
    let stopped = Process::start(&mut scan(&args));
    // The scan has begun.
    let first = stopped.line();
    assert_eq!(first.len(), 32);
    stopped.signal(Signal::STOP);
    let (sum, records) = expected(&served.table, 1000);
    let done = served.run(&["--argument", "1000"]).worked();
    assert!(done.text().starts_with(&format!("{} of {records} records", sum.rows)), "{}", done.text());
    stopped.signal(Signal::CONT);
    let (sum, _) = expected(&served.table, 1_000_000);
    let rest = printed(&stopped.finish().worked());
    assert_eq!(rest.rows + 1, sum.rows);
}

#[test]
fn a_scan_with_an_endless_predicate_times_out_at_its_patience() {
    let Some(mut served) = Served::start(2, false) else { return };
    let hangs = served.predicate(
        "#include \"scan.h\"\n\
         static int mine_row(const uint8_t *record, size_t len, const void *args, size_t args_len, struct scan_out *out)\n\
         { (void)record; (void)len; (void)args; (void)args_len; (void)out; for (;;) __asm__ volatile(\"\"); }\nSCAN(mine)\n",
    );
    let done = served.run(&["--predicate", &hangs, "--patience", "3000"]);
    done.fails(1, &["waiting for a reply", "timed out after 3s"]);
    // The function runs for ever, so the target cannot be stopped otherwise.
    served.process.kill_and_wait();
}

#[test]
fn a_file_that_is_cut_is_an_error_and_the_target_lives() {
    let Some(served) = Served::start(BLOCKS, false) else { return };
    // Its rows of one block are more than a pipe holds, so it stands still until they are read.
    let args = ["run", "--to", &served.address, "--argument", "1000000", "--credit", "1", "--rows"];
    let _watchdog = Watchdog::new();
    let mut command = scan(&args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut under_way = end_with_this_thread(&mut command).spawn().unwrap();
    let mut out = BufReader::new(under_way.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert_eq!(first.trim_end().len(), 32);
    let len = fs::metadata(&served.table).unwrap().len();
    let left = UNIT + (len - UNIT) / 2 + 100;
    let file = File::options().write(true).open(&served.table).unwrap();
    file.set_len(left).unwrap();
    out.read_to_end(&mut Vec::new()).unwrap();
    let ended = under_way.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let cut = format!("the table was cut to {left} bytes");
    assert!(ended.status.code() == Some(1) && said.contains(&cut), "{said}");
    served.run(&[]).fails(1, &[&cut, "start its target again"]);
    // Bytes that come back are other bytes.
    file.set_len(len).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    served.run(&[]).fails(1, &["the table was changed before block 0 was read"]);
    served.process.stop().worked();
}

#[test]
fn a_false_length_is_reported_by_offset_and_the_target_survives() {
    let lie = |block: u64, at: u64, says: u32| {
        move |file: &mut File| {
            file.seek(SeekFrom::Start(UNIT + (block << 20) + at)).unwrap();
            file.write_all(&says.to_le_bytes()).unwrap();
        }
    };
    // The first record of a block, and the number of bytes that a block uses.
    for (is_variable, at, says) in
        [(true, 8, u32::MAX), (true, 8, 1 << 20), (false, 0, u32::MAX), (true, 0, 3)]
    {
        let Some(served) = Served::of(3, is_variable, lie(1, at, says)) else { return };
        let shown = format!("at byte {at} of it a length of {says} bytes");
        served.run(&["--argument", "1000000"]).fails(1, &["block 1 is damaged", &shown]);
        served.run(&["--argument", "0"]).fails(1, &["block 1 is damaged"]);
        served.process.stop().worked();
    }
    // With records of one length, the last one would go beyond the block's used bytes.
    let Some(served) = Served::of(1, false, lie(0, 0, 8 + 63)) else { return };
    served.run(&[]).fails(1, &["at byte 8 of it a length of 64 bytes"]);
}

#[test]
fn paths_without_a_whole_table_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let serve = |path: &Path| finish(&mut scan(&["serve", path.to_str().unwrap(), "--listen", "unix:none"]));
    serve(&path).fails(1, &["file: No such file"]);
    fs::write(&path, "text").unwrap();
    serve(&path).fails(1, &["no table", "scan make"]);
    serve(folder.path()).fails(1, &["no regular file"]);
    serve(Path::new("/dev/zero")).fails(1, &["no regular file"]);
    let pipe = folder.path().join("pipe");
    finish(Command::new("mkfifo").arg(&pipe)).worked();
    serve(&pipe).fails(1, &["no regular file"]);
    let table = folder.path().join("table");
    make(&table, 2, false, 1).unwrap();
    let len = fs::metadata(&table).unwrap().len();
    File::options().write(true).open(&table).unwrap().set_len(len - 1).unwrap();
    serve(&table).fails(1, &["it was cut", &len.to_string()]);
    finish(&mut scan(&["make", table.to_str().unwrap()])).fails(1, &["table: File exists"]);
}

#[test]
fn compare_measures_every_case_over_sealed_tcp_and_plots_it() {
    if !all_work(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for variable in [&[][..], &["--variable"]] {
        let (table, picture) = (folder.path().join("table"), folder.path().join("scan.svg"));
        let (table, drawn) = (table.to_str().unwrap(), picture.to_str().unwrap());
        finish(&mut scan(&[&["make", table, "--blocks", "3"], variable].concat())).worked();
        let args = ["compare", table, "--keep", "0.1,100", "--rounds", "2", "--plot", drawn];
        let done = finish(&mut scan(&args)).worked();
        let text = done.text();
        for part in ["3 blocks", "replies by tcp, sealed", "inject", "local", "0.1 %", "100 %"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let drawn = fs::read_to_string(&picture).unwrap();
        for part in ["<svg", "records that are kept", "inject", "copy", "local"] {
            assert!(drawn.contains(part), "{part} is not drawn");
        }
        fs::remove_file(table).unwrap();
    }
}

#[test]
fn options_that_make_no_sense_are_refused_with_what_to_write() {
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--to", "unix:none", "--credit", "0"], "write one from 1 to 64"),
        (&["compare", "none", "--keep", "101"], "write percent from 0 to 100"),
        (&["compare", "none", "--rounds", "0"], "1..=1000"),
        (&["compare", "none", "--plot", "scan.png"], "end the name with .svg"),
        (&["serve", "none", "--listen", "unix:x", "--memory", "1"], "32..="),
        (&["make", "none", "--blocks", "9999999"], "..=1048576"),
    ];
    for (args, part) in cases {
        let output = finish(&mut scan(args));
        assert_eq!(output.code, 2, "{args:?}");
        assert!(output.err.contains(part), "{args:?}: {}", output.err);
    }
    let none = finish(&mut scan(&["compare", "none", "--plot", "/no/such/folder/scan.svg"]));
    none.fails(1, &["--plot /no/such/folder/scan.svg"]);
}
