//! Memory of ended links: it does not change while a process may use it, and is free when the last one has let go.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farjump::objects::ObjectState;
use farjump::{ConnectError, Key, Library, Link, Mode, Target};
use farjump_fixtures::helper_process::{
    HelperProcess, as_test, command_value, commands, role, say, say_value,
};
use farjump_fixtures::process::end_with_this_thread;
use farjump_fixtures::watchdog::Watchdog;
use farjump_handles::{Client, Error, Handle, Store, View};
use rustix::process::Signal;
use tempfile::TempDir;

/// The test that helper processes run.
const ENTRY: &str = "a_process_plays_the_role_that_it_was_started_for";
const TEXT: &str = "checked text é ";
const TIMES: usize = 4096;
const CAPACITY: u64 = 1 << 20;
/// Bytes of the object during whose put a client is stopped.
const HALF_WRITTEN: usize = 512 << 10;

/// A store and its target, which a test polls itself.
struct Owner {
    store: Store,
    target: Option<Target<'static>>,
    address: String,
    _folder: TempDir,
    _watchdog: Watchdog,
}

impl Owner {
    fn new() -> Owner {
        let folder = farjump_fixtures::folder();
        let address = format!("unix:{}", folder.path().join("owner.sock").display());
        let store = Store::options().capacity(CAPACITY).build().unwrap();
        let target = Target::listen(&address).objects(store.service()).max_sources(1).build().unwrap();
        Owner { store, target: Some(target), address, _folder: folder, _watchdog: Watchdog::new() }
    }

    /// Polls the target while `work` runs.
    fn serve<T>(&mut self, work: impl FnOnce() -> T) -> T {
        serve(self.target.as_mut().unwrap(), work)
    }

    /// Starts a process that reads the object of `handle` by a mapped view.
    fn reader(&mut self, role: &str, handle: &Handle) -> HelperProcess {
        let address = self.address.clone();
        self.serve(|| {
            let mut reader = HelperProcess::of_test(ENTRY, &[role, &address]);
            reader.order_value(&handle.to_bytes());
            assert_eq!(reader.hear(), "mapped");
            reader
        })
    }

    /// As [`fill_up`].
    fn fill(&self) -> Error {
        fill_up(&self.store)
    }
}

/// Polls a target while `work` runs.
fn serve<T>(target: &mut Target<'static>, work: impl FnOnce() -> T) -> T {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                target.poll().unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        });
        // Also if the work panics.
        let _ends = Ends(&ended);
        work()
    })
}

/// Puts other bytes until the store is full, and returns the error.
fn fill_up(store: &Store) -> Error {
    let other = vec![0xff; TEXT.len() * TIMES];
    loop {
        if let Err(full) = store.put(&other) {
            return full;
        }
    }
}

/// Waits until `is_so`, for things that a process does in its own time.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Asserts that the error names the process, which keeps at least `bytes`.
fn assert_kept(full: &Error, by: &HelperProcess, bytes: u64) {
    let Error::Full { quarantined, keepers, .. } = full else { panic!("{full}") };
    assert!(*quarantined >= bytes, "{full}");
    let pid = by.pid().as_raw_nonzero();
    assert!(keepers.contains(&format!("(pid {pid})")) && full.to_string().contains(keepers), "{full}");
}

/// The program `stale_view` of an audit: the text of a reader turned into other bytes.
#[test]
fn an_evicted_object_stays_unchanged_for_readers_after_links_end() {
    for ends_target in [false, true] {
        let mut owner = Owner::new();
        let handle = owner.store.put(TEXT.repeat(TIMES).as_bytes()).unwrap();
        let mut reader = owner.reader("reader", &handle);
        owner.store.evict(&handle).unwrap();
        match ends_target {
            false => owner.target.as_mut().unwrap().end_links("the owner ends its links"),
            true => drop(owner.target.take()),
        }
        assert_kept(&owner.fill(), &reader, handle.len());
        reader.order("look");
        assert_eq!(reader.hear(), "0 changed");
        let listing = owner.store.list(100);
        let evicted = |state| state == ObjectState::Evicted;
        assert_eq!(listing.objects.iter().filter(|object| evicted(object.state)).count(), 1);
        assert_eq!((listing.keepers.len(), listing.quarantined >= handle.len()), (1, true));
        let pid = reader.pid().as_raw_nonzero().get();
        assert_eq!(listing.keepers[0].pid, pid.cast_unsigned());
        // The reader drops its view and its client, and stays alive.
        reader.obey("drop");
        eventually("the memory is free", || owner.store.put(&vec![0; handle.len() as usize]).is_ok());
        let listing = owner.store.list(100);
        assert_eq!((listing.keepers.len(), listing.quarantined), (0, 0));
        reader.end();
    }
}

#[test]
fn a_reader_that_is_stopped_keeps_its_bytes_until_it_is_killed() {
    let mut owner = Owner::new();
    let handle = owner.store.put(TEXT.repeat(TIMES).as_bytes()).unwrap();
    let mut reader = owner.reader("reader", &handle);
    reader.signal(Signal::STOP);
    owner.store.evict(&handle).unwrap();
    owner.target.as_mut().unwrap().end_links("the owner ends its links");
    assert_kept(&owner.fill(), &reader, handle.len());
    assert_kept(&owner.fill(), &reader, handle.len());
    reader.signal(Signal::CONT);
    reader.order("look");
    assert_eq!(reader.hear(), "0 changed");
    reader.signal(Signal::STOP);
    reader.kill();
    eventually("the memory is free", || owner.store.put(&vec![0; handle.len() as usize]).is_ok());
}

/// The program `late_write` of an audit: a client that was stopped in the middle of a `put` wrote into the next object.
#[test]
fn a_client_stopped_in_a_put_later_overwrites_no_object() {
    let mut owner = Owner::new();
    let address = owner.address.clone();
    let store = owner.store.clone();
    let mut writer = owner.serve(|| {
        let writer = HelperProcess::of_test(ENTRY, &["writer", &address]);
        assert_eq!(writer.hear(), "puts");
        let is_unfinished =
            || store.list(4).objects.iter().any(|object| object.state == ObjectState::Unfinished);
        eventually("the memory is allocated", is_unfinished);
        let status = format!("/proc/{}/status", writer.pid().as_raw_nonzero());
        eventually("it stops itself", || std::fs::read_to_string(&status).unwrap().contains("State:\tT"));
        writer
    });
    owner.target.as_mut().unwrap().end_links("the owner ends its links");
    let put = |len| store.put_with("", len, |bytes| bytes.fill(b'n'));
    // No more than half of the memory is left.
    assert_kept(&put(HALF_WRITTEN + (128 << 10)).unwrap_err(), &writer, HALF_WRITTEN as u64);
    let beside = put(HALF_WRITTEN / 2).unwrap();
    writer.signal(Signal::CONT);
    assert_eq!(owner.serve(|| writer.hear()), "its put failed");
    assert!(store.get(&beside).unwrap().iter().all(|byte| *byte == b'n'));
    assert_kept(&put(HALF_WRITTEN + (128 << 10)).unwrap_err(), &writer, HALF_WRITTEN as u64);
    store.evict(&beside).unwrap();
    writer.obey("drop");
    eventually("the memory is free", || put(HALF_WRITTEN + (128 << 10)).is_ok());
    writer.end();
}

/// As the program `forked.py` of an audit: the farewell of a reader, or its end, freed bytes that its child still read.
#[test]
fn a_forked_child_keeps_its_bytes_however_its_parent_ends() {
    // A view of many bytes is released as soon as it is dropped.
    for (in_order, times) in [(true, TIMES), (true, 10 * TIMES), (false, TIMES)] {
        let mut owner = Owner::new();
        let handle = owner.store.put(TEXT.repeat(times).as_bytes()).unwrap();
        let mut family = owner.reader("parent", &handle);
        owner.serve(|| match in_order {
            true => {
                family.order("leave");
                eventually("the parent has ended", || family.has_ended());
            }
            false => family.kill(),
        });
        // The child has the connection too. So only a farewell ends the link.
        if in_order {
            let target = owner.target.as_mut().unwrap();
            eventually("the link is over", || target.poll().is_ok() && target.sources() == 0);
        }
        owner.store.evict(&handle).unwrap();
        let full = owner.fill();
        match in_order {
            true => assert_kept(&full, &family, handle.len()),
            false => assert_eq!(owner.target.as_ref().unwrap().sources(), 1),
        }
        family.order("look");
        assert_eq!(family.hear(), "0 changed");
        family.order("end");
        let store = owner.store.clone();
        owner.serve(|| {
            eventually("the memory is free", || store.put(&vec![0; handle.len() as usize]).is_ok());
        });
    }
}

#[test]
fn a_client_that_lets_go_later_has_the_place_of_a_source() {
    let mut owner = Owner::new();
    let (handle, address) = (owner.store.put(&[7; 100]).unwrap(), owner.address.clone());
    let client = owner.serve(|| Client::connect(&address).unwrap());
    let view = owner.serve(|| client.get(&handle).unwrap());
    assert!(view.is_mapped());
    owner.target.as_mut().unwrap().end_links("the owner ends its links");
    assert_eq!(owner.target.as_ref().unwrap().sources(), 0);
    let refused = owner.serve(|| Client::connect(&address).unwrap_err());
    assert!(refused.to_string().contains("takes 1 source at a time"), "{refused}");
    drop(client);
    let refused = owner.serve(|| Client::connect(&address).unwrap_err());
    assert!(matches!(refused, Error::Link(farjump::Error::Connect(ConnectError::Handshake(_)))), "{refused}");
    drop(view);
    owner.serve(|| eventually("there is a place", || Client::connect(&address).is_ok()));
}

/// Its objects would be read without claims: only the store that gave claims knows them.
#[test]
fn a_client_does_not_map_the_memory_of_a_replacing_store() {
    let mut owner = Owner::new();
    let address = owner.address.clone();
    let client = owner.serve(|| Client::connect(&address).unwrap());
    drop(owner.target.take());
    owner.store = Store::options().capacity(CAPACITY).build().unwrap();
    owner.target = Some(Target::listen(&address).objects(owner.store.service()).build().unwrap());
    let why = owner.serve(|| client.mapping().unwrap_err().to_owned());
    assert!(why.contains("another store"), "{why}");
    owner.serve(|| Client::connect(&address).unwrap().mapping().unwrap());
}

/// A source over TCP maps nothing.
#[test]
fn nothing_waits_for_a_source_over_tcp() {
    let store = Store::options().capacity(CAPACITY).build().unwrap();
    let key = Key::from_bytes([7; Key::LEN]);
    let target = Target::listen("tcp:127.0.0.1:0").objects(store.service()).key(key.clone());
    let mut target = target.build().unwrap();
    let link = Link::builder(&target.address()).key(key);
    let link = serve(&mut target, || link.connect().unwrap());
    link.set_mode(Mode::Local);
    // A request for memory (docs/reference/protocol.md): it is not written before the link ends.
    let request = [&[2][..], &(CAPACITY / 2 + 1).to_le_bytes(), &[0]].concat();
    let library = Library::by_name(farjump::objects::NAME).unwrap();
    serve(&mut target, || {
        drop(link.inject(&library, &request).unwrap().wait(Duration::from_secs(60)).unwrap())
    });
    let put = || store.put(&vec![7; CAPACITY as usize / 2 + 1]);
    assert!(matches!(put(), Err(Error::Full { quarantined: 0, .. })));
    target.end_links("the owner ends its links");
    put().unwrap();
    drop(link);
}

/// An owner in a PID namespace of its own has no number for a reader outside of it.
#[test]
fn a_reader_in_another_pid_namespace_keeps_bytes_and_is_reported() {
    let _watchdog = Watchdog::new();
    let apart = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--"]);
        end_with_this_thread(&mut command);
        command
    };
    match apart().arg("true").output() {
        Ok(made) if made.status.success() => {}
        Ok(made) => {
            let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return println!("skipped: no PID namespace can be made: {why}");
        }
        Err(error) => return println!("skipped: unshare does not run: {error}"),
    }
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let mut command = apart();
    command.arg(std::env::current_exe().unwrap());
    let mut owner = HelperProcess::start(as_test(command, ENTRY, &["owner", &address]));
    let handle = owner.hear();
    let mut reader = HelperProcess::of_test(ENTRY, &["reader", &address]);
    reader.order(&handle);
    assert_eq!(reader.hear(), "mapped");
    owner.order("fill");
    let full = owner.hear();
    assert!(full.contains(" bytes are kept for ended links of ") && full.contains("PID namespace"), "{full}");
    reader.order("look");
    assert_eq!(reader.hear(), "0 changed");
    reader.kill();
    owner.obey("wait");
    owner.end();
}

/// The entry of helper processes; without a role it does nothing.
#[test]
fn a_process_plays_the_role_that_it_was_started_for() {
    let role = role();
    let args: Vec<&str> = role.iter().map(String::as_str).collect();
    match args[..] {
        [] => {}
        ["reader", address] => play_reader(address),
        ["parent", address] => play_parent(address),
        ["writer", address] => play_writer(address),
        ["owner", address] => play_owner(address),
        _ => panic!("no such role: {args:?}"),
    }
}

/// Gets the object whose handle is the first command.
fn mapped(address: &str) -> View {
    let client = Client::connect(address).unwrap();
    let view = client.get(&Handle::from_bytes(&command_value::<Vec<u8>>()).unwrap()).unwrap();
    assert!(view.is_mapped());
    view
}

/// Number of changed bytes.
fn changed(view: &[u8]) -> usize {
    let was = TEXT.as_bytes().iter().cycle();
    view.iter().zip(was).filter(|(is, was)| is != was).count()
}

fn play_reader(address: &str) {
    let _watchdog = Watchdog::new();
    let mut view = Some(mapped(address));
    say("mapped");
    for order in commands() {
        match &*order {
            "look" => say(&format!("{} changed", changed(black_box(view.as_deref().unwrap())))),
            "drop" => {
                view = None;
                say("done");
            }
            _ => panic!("no such order: {order}"),
        }
    }
}

/// Forks. The child looks at the view after the parent has ended.
fn play_parent(address: &str) {
    let view = mapped(address);
    let parent = std::process::id().cast_signed();
    // SAFETY: the child makes system calls and reads its memory; it neither allocates nor takes a lock.
    match unsafe { libc::fork() } {
        0 => {
            let mut order = [0; 16];
            // SAFETY: as above; the calls get an array of the length that is stated, or none.
            unsafe {
                while libc::getppid() == parent {
                    libc::usleep(1000);
                }
                loop {
                    let read = libc::read(0, order.as_mut_ptr().cast(), order.len());
                    if read <= 0 || order[0] != b'l' {
                        libc::_exit(0);
                    }
                    let words: &[u8] =
                        if changed(black_box(&view)) == 0 { b"@0 changed\n" } else { b"@changed\n" };
                    libc::write(1, words.as_ptr().cast(), words.len());
                }
            }
        }
        child => assert!(child > 0),
    }
    say("mapped");
    assert_eq!(commands().next().as_deref(), Some("leave"));
    drop(view);
    // Without a panic of the child's, which has no part in the test.
    std::process::exit(0);
}

/// The second half of the bytes that the client puts. It cannot be read before the process was stopped.
static UNREADABLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

extern "C" fn stop_and_continue(_signal: c_int) {
    let page = UNREADABLE.load(Ordering::Relaxed);
    // SAFETY: the mapping is this process's, and stays.
    unsafe {
        libc::raise(libc::SIGSTOP);
        libc::mprotect(page, HALF_WRITTEN / 2, libc::PROT_READ);
    }
}

fn play_writer(address: &str) {
    let _watchdog = Watchdog::new();
    let client = Client::connect(address).unwrap();
    client.mapping().unwrap();
    // SAFETY: a new mapping, whose second half cannot be read until the handler has run; the handler makes system calls.
    let bytes = unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(ptr::null_mut(), HALF_WRITTEN, protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        start.cast::<u8>().write_bytes(b'c', HALF_WRITTEN);
        let second = start.byte_add(HALF_WRITTEN / 2);
        UNREADABLE.store(second, Ordering::Relaxed);
        assert_ne!(libc::signal(libc::SIGSEGV, stop_and_continue as *const () as usize), libc::SIG_ERR);
        assert_eq!(libc::mprotect(second, HALF_WRITTEN / 2, libc::PROT_NONE), 0);
        std::slice::from_raw_parts(start.cast::<u8>(), HALF_WRITTEN)
    };
    say("puts");
    say(if client.put(bytes).is_err() { "its put failed" } else { "its put was done" });
    assert_eq!(commands().next().as_deref(), Some("drop"));
    drop(client);
    say("done");
}

/// An owner that puts an object, and at the command `fill` ends its links and fills its store.
fn play_owner(address: &str) {
    let _watchdog = Watchdog::new();
    let store = Store::options().capacity(CAPACITY).build().unwrap();
    let mut target = Target::listen(address).objects(store.service()).build().unwrap();
    let handle = store.put(TEXT.repeat(TIMES).as_bytes()).unwrap();
    say_value(&handle.to_bytes());
    let fill = serve(&mut target, || commands().next());
    assert_eq!(fill.as_deref(), Some("fill"));
    store.evict(&handle).unwrap();
    target.end_links("the owner ends its links");
    say(&fill_up(&store).to_string());
    assert_eq!(commands().next().as_deref(), Some("wait"));
    eventually("the memory is free", || store.put(&vec![0; handle.len() as usize]).is_ok());
    say("done");
}
