//! A function that is registered as bitcode goes to a process of another machine, and is forwarded from there. `cargo
//! xtask test emulated` runs this as a program for aarch64, whose source runs on this machine. Otherwise both
//! processes are of one machine.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use farjump_fixtures::helper_process::{HelperProcess, again, as_test, role};
use farjump_fixtures::this_test;
use farjump_machines::{Peer, last_error, swap};
use farjump_tools::all_work;

/// The variable with this test as a program of another machine.
const OTHER: &str = "FARJUMP_TEST_OTHER_MACHINES";
/// Time for the whole test.
const PATIENCE: Duration = Duration::from_secs(120);
/// UCX's status of a slot without a frame.
const NO_MESSAGE: i8 = -1;
/// The number that each call adds, and the calls in each process.
const NUMBER: u64 = 7;
const CALLS: u64 = 10;

/// Adds a number, and forwards itself as often as its second number says.
const HOPS: &str = "typedef unsigned long u64;
typedef struct { void *ifunc, *frame; u64 size; } message_t;
typedef struct { const char *name; int pure, llvm_bc; } param_t;
struct world { void *context, *ep, *key; u64 remote, sum; long failed; };
signed char ucp_register_ifunc(void *context, param_t param, void **ifunc);
signed char ucp_ifunc_msg_create(void *ifunc, void *args, u64 size, message_t *message);
void ucp_ifunc_msg_free(message_t message);
signed char ucp_ifunc_send_nbix(void *ep, message_t message, u64 remote, void *key);
u64 hops_payload_bound(void *args, u64 size) { (void)args; return size; }
int hops_payload_init(void *args, u64 size, void *payload, u64 *used)
{
    for (u64 i = 0; i < size / 8; i++)
        ((u64 *)payload)[i] = ((u64 *)args)[i];
    *used = size;
    return 0;
}
void hops_main(void *payload, u64 size, void *target)
{
    struct world *world = target;
    u64 args[2] = { ((u64 *)payload)[0], ((u64 *)payload)[1] - 1 };
    param_t param = { \"hops\", 0, 0 };
    message_t message;
    void *self;
    signed char status;
    (void)size;
    world->sum += args[0];
    if (((u64 *)payload)[1] == 0)
        return;
    status = ucp_register_ifunc(world->context, param, &self);
    if (status == 0)
        status = ucp_ifunc_msg_create(self, args, sizeof args, &message);
    if (status == 0) {
        status = ucp_ifunc_send_nbix(world->ep, message, world->remote, world->key);
        ucp_ifunc_msg_free(message);
    }
    if (status < 0)
        world->failed = status;
}
";

/// Runs frames until the function has been called often enough here.
fn run(peer: &mut Peer) {
    let begun = Instant::now();
    while peer.world.sum < NUMBER * CALLS {
        assert!(begun.elapsed() < PATIENCE, "{} of {CALLS} calls came", peer.world.sum / NUMBER);
        let status = peer.poll();
        assert!(status == 0 || status == NO_MESSAGE, "{status}: {}", last_error());
        assert_eq!(peer.world.failed, 0, "{}", last_error());
        thread::yield_now();
    }
}

/// Waits until the other process is done, too: puts over TCP need progress of both until then.
fn leave(peer: &mut Peer, mut stream: UnixStream) {
    let other = thread::spawn(move || swap(&mut stream, b"done").unwrap());
    let begun = Instant::now();
    while !other.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "the other process is not done");
        peer.poll();
        thread::yield_now();
    }
    assert_eq!(other.join().unwrap(), b"done");
}

fn source(folder: &Path) {
    let mut stream = UnixStream::connect(folder.join("socket")).unwrap();
    let mut peer = Peer::open(&mut stream);
    let read = |name| fs::read(folder.join(name)).unwrap();
    let codes = [(c"x86_64-linux-gnu", read("x86_64.bc")), (c"aarch64-linux-gnu", read("aarch64.bc"))];
    let ifunc = peer.register(c"hops", &codes);
    peer.send(ifunc, &mut [NUMBER, 2 * CALLS - 1]);
    run(&mut peer);
    leave(&mut peer, stream);
}

/// Accepts the connection of a process, which has to come before the process ends.
fn accepted(listener: &UnixListener, process: &mut HelperProcess) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < PATIENCE && !process.has_ended(), "the source did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_bitcode_function_is_sent_to_another_machine_and_returns() {
    if let [_, folder] = &role()[..] {
        return source(Path::new(folder));
    }
    let other = env::var_os(OTHER);
    let beside = other.clone().map_or_else(|| env::current_exe().unwrap(), Into::into);
    let compiler = beside.parent().unwrap().with_file_name("farjump_compiler");
    if !compiler.exists() {
        println!(
            "skipped: no program farjump_compiler: cargo build --package farjump-cli --bin farjump_compiler"
        );
        return;
    }
    if !all_work(&["clang"]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("farjump-").tempdir().unwrap();
    let source = folder.path().join("hops.c");
    fs::write(&source, HOPS).unwrap();
    for machine in ["x86_64", "aarch64"] {
        let mut clang = Command::new("clang");
        clang.arg(format!("--target={machine}-linux-gnu")).args([
            "-O2",
            "-flto=thin",
            "-fPIC",
            "-ffreestanding",
            "-c",
        ]);
        let made =
            clang.arg(&source).arg("-o").arg(folder.path().join(format!("{machine}.bc"))).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let command = other.map_or_else(again, Command::new);
    let mut command = as_test(command, this_test!(), &["source", folder.path().to_str().unwrap()]);
    command.env("FARJUMP_COMPILER", compiler);
    command.env("RUSTC", env::var_os("FARJUMP_TEST_RUSTC").unwrap_or_else(|| "rustc".into()));
    let mut process = HelperProcess::start(command);
    let mut stream = accepted(&listener, &mut process);
    let mut peer = Peer::open(&mut stream);
    run(&mut peer);
    leave(&mut peer, stream);
    process.wait();
    assert_eq!(peer.world.sum, NUMBER * CALLS);
}
