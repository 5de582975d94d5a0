//! The service and its client as processes: their output, and the service's sleep while it is idle.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};

/// Time after which a program is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program, killed with the test in any case.
struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Program {
    fn start(args: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokio_service"));
        let mut child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Program { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the program says something")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection to the service's lines.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.0.get_mut(), "{line}").unwrap();
        let mut reply = String::new();
        self.0.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    }

    fn woken(&mut self) -> u64 {
        self.ask("woken").parse().unwrap()
    }
}

#[test]
fn tasks_serve_lines_and_injected_functions_over_the_same_rows_and_sleep_when_nobody_asks() {
    let folder = tempfile::tempdir().unwrap();
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

/// A service at `address` is used by a client, and then left alone.
fn serves(address: &str, transport: &str, library: &Path) {
    let service = Program::start(&["serve", address, transport]);
    let ready = service.line();
    let words: Vec<&str> = ready.split(' ').collect();
    let ["ready", place, address] = words[..] else { panic!("{ready}") };
    let client = Program::start(&["ask", address, &library.display().to_string(), place, transport]);
    assert_eq!(client.line(), "row 50 is 2500, and 98 sums are right");
    // 3² + 1000 + 5²
    assert_eq!(client.line(), "with 1000 in row 4, rows 3, 4 and 5 sum up to 1034");
    let total: u64 = (0..100).map(|key| if key == 4 { 1000 } else { key * key }).sum();
    assert_eq!(client.line(), format!("1000000 keys, with 1000 in row 4, sum up to {}", total * 10_000));

    let stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = Lines(BufReader::new(stream));
    assert_eq!(lines.ask("get 4"), "1000");
    assert_eq!(lines.ask("put 4"), "no such command: put KEY VALUE, get KEY, woken");
    // The client has gone by now, or goes.
    assert!(client.lines.recv_timeout(PATIENCE).is_err());
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
