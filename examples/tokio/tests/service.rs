//! The service and its client as processes: their output, and the service's sleep while it is idle.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump_fixtures::process::{PATIENCE, Process};

fn start(args: &[&OsStr]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokio_service"));
    Process::spawn(command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()))
}

/// A connection to the service's lines.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn request(&mut self, line: &str) -> String {
        writeln!(self.0.get_mut(), "{line}").unwrap();
        let mut reply = String::new();
        self.0.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    }

    fn woken(&mut self) -> u64 {
        self.request("woken").parse().unwrap()
    }
}

#[test]
fn tasks_serve_lines_and_ifuncs_on_shared_rows_and_otherwise_sleep() {
    let folder = farjump_fixtures::folder();
    let library = folder.path().join("libsum.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../farjump/examples/sum.c");
    build(&Options { inputs: vec![source], output: library.clone(), ..Options::default() }).unwrap();
    let unix = format!("unix:{}", folder.path().join("t.sock").display());
    thread::scope(|scope| {
        for (address, transport) in [(&*unix, "shm"), ("tcp:127.0.0.1:0", "tcp")] {
            let library = &library;
            scope.spawn(move || serves(address, transport, library));
        }
    });
}

/// Runs a client against a service at `address`, and then leaves the service alone.
fn serves(address: &str, transport: &str, library: &Path) {
    let service = start(&["serve", address, transport].map(OsStr::new));
    let ready = service.line();
    // The address is the last word: a path in it may have blanks.
    let words: Vec<&str> = ready.splitn(3, ' ').collect();
    let ["ready", place, address] = words[..] else { panic!("{ready}") };
    let client =
        start(&["ask".as_ref(), address.as_ref(), library.as_os_str(), place.as_ref(), transport.as_ref()]);
    assert_eq!(client.line(), "row 50 is 2500, and 98 sums are right");
    // 3² + 1000 + 5²
    assert_eq!(client.line(), "with 1000 in row 4, rows 3, 4 and 5 sum up to 1034");
    let total: u64 = (0..100).map(|key| if key == 4 { 1000 } else { key * key }).sum();
    assert_eq!(client.line(), format!("1000000 keys, with 1000 in row 4, sum up to {}", total * 10_000));

    let stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = Lines(BufReader::new(stream));
    assert_eq!(lines.request("get 4"), "1000");
    assert_eq!(lines.request("put 4"), "no such command: put KEY VALUE, get KEY, woken");
    client.finish().worked();
    let (start, before) = (Instant::now(), lines.woken());
    thread::sleep(Duration::from_secs(2));
    let woken = lines.woken() - before;
    // One wake a second, however long that took.
    let seconds = start.elapsed().as_secs() + 1;
    assert!(
        woken <= 5 + 2 * seconds,
        "{transport}: the target's task was woken {woken} times in {seconds} s of nothing"
    );
}
