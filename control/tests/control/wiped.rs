//! Traces of a key in memory: none is left once all its holders are dropped. A child process works with keys,
//! and then searches all of its own writable memory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farjump_control::{
    Arrival, Handshake, HandshakeError, Key, KeyFile, Keys, Listener, Progress, TcpOptions,
    admin_request_with, connect_target,
};
use farjump_core::transport::{
    Address, Capabilities, Endpoint, LocalAddress, OpenRequest, Secret, Stream, StreamRole, Transport,
    TransportError, UnconnectedEndpoint,
};
use farjump_fixtures::control::{Place, accept, far, shm, source_options, target_options};
use farjump_fixtures::helper_process::{HelperProcess, is_alone, path_of_helper};
use farjump_fixtures::this_test;
use farjump_transports::tcp::Tcp;
use ring::hkdf::{HKDF_SHA256, Prk, Salt};

use crate::tcp::{REQUEST, RESPONSE, key, listener, respond_once};

/// Disguises the wanted keys, so that the search itself has none of them in memory.
const MASK: u8 = 0x5a;
/// Bytes of a key that count as a trace of it: half of it is enough.
const TRACE: usize = 16;
/// Length of allocations that never reuse freed memory, in bytes.
const APART: usize = 64 << 20;

/// Returns the locations of traces of `disguised` in this process's memory: of its bytes, or of its digits.
fn traces(disguised: &[Vec<u8>]) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        // So much is mapped at unused addresses, and not searched itself.
        let mut space = vec![0; APART.max((to - from) as usize)];
        let bytes = &mut space[..(to - from) as usize];
        // Some are the system's, and unreadable.
        if memory.read_exact_at(bytes, from).is_err() {
            continue;
        }
        for (number, key) in disguised.iter().enumerate() {
            for trace in key.chunks_exact(TRACE) {
                let same =
                    |window: &[u8]| window.iter().zip(trace).all(|(byte, masked)| byte ^ MASK == *masked);
                let first = trace[0] ^ MASK;
                found.extend(
                    bytes
                        .windows(TRACE)
                        .enumerate()
                        .filter(|(_, window)| window[0] == first && same(window))
                        .map(|(at, _)| format!("key {number}, {:#x} in {line}", from + at as u64)),
                );
            }
        }
        // Copies made here must not be found again.
        bytes.fill(0);
        std::hint::black_box(bytes);
    }
    found
}

/// Returns a target whose keys are in a file.
fn serving(path: &Path) -> (Listener, KeyFile) {
    let (file, keys) = KeyFile::open(path).unwrap();
    let mut options = TcpOptions::default();
    options.keys = Some(keys);
    (listener(&options), file)
}

fn request_with_key(
    listener: &Listener,
    key: &Path,
) -> (Result<(), HandshakeError>, Result<(), HandshakeError>) {
    thread::scope(|scope| {
        let source = scope.spawn(|| {
            let options = TcpOptions::default().with_key(Some(Key::read(key).unwrap()));
            admin_request_with(listener.address(), &options, REQUEST, far())
                .map(|response| assert_eq!(response, RESPONSE))
        });
        let target = respond_once(listener);
        (source.join().unwrap(), target)
    })
}

/// Works with keys: handshakes that succeed, fail, and end in the middle, and a file that changes.
fn use_keys(folder: &Path) {
    let [taken, other, file] = ["taken", "other", "file"].map(|name| folder.join(name));
    let (mut listener, mut watched) = serving(&file);
    for _ in 0..3 {
        let (source, target) = request_with_key(&listener, &taken);
        source.unwrap();
        target.unwrap();
        let (source, target) = request_with_key(&listener, &other);
        assert!(matches!(source, Err(HandshakeError::WrongKey { .. })), "{source:?}");
        assert!(matches!(target, Err(HandshakeError::WrongKey { .. })), "{target:?}");
    }
    // A source whose target sends nothing, and a target whose source sends half of a handshake.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", silent.local_addr().unwrap()).parse().unwrap();
    let options = TcpOptions::default().with_key(Some(Key::read(&taken).unwrap()));
    let soon = Instant::now() + Duration::from_millis(50);
    assert!(matches!(
        admin_request_with(&address, &options, REQUEST, soon),
        Err(HandshakeError::TimedOut { .. })
    ));
    let mut half = TcpStream::connect(&listener.address().to_string()["tcp:".len()..]).unwrap();
    half.write_all(b"FARJUMP\0\x08\0\x01\0\x30\0half").unwrap();
    let mut options = target_options();
    options.patience = Duration::from_millis(50);
    let mut arrival = Arrival::new(accept(&listener).unwrap(), options);
    let late = loop {
        if let Err(error) = arrival.advance(&mut shm()) {
            break error;
        }
    };
    assert!(matches!(late, HandshakeError::TimedOut { .. }), "{late}");
    // The file changes, is malformed, and is gone.
    for text in [fs::read(&other).unwrap(), b"no key".to_vec()] {
        fs::write(&file, text).unwrap();
        for _ in 0..4 {
            if let Some(keys) = watched.look(watched.due()) {
                assert!(arrival.rekey(&keys).is_none());
                listener.take_keys(keys);
            }
        }
    }
    assert!(request_with_key(&listener, &other).0.is_ok() && request_with_key(&listener, &taken).0.is_err());
    fs::remove_file(&file).unwrap();
    assert!((0..4).filter_map(|_| watched.look(watched.due())).all(|keys| keys.is_empty()));
    // Adds one to a file, and reads malformed ones.
    Keys::add(&taken, "more", None).unwrap();
    assert!(Key::read(&taken).is_err() && Keys::read(&taken).unwrap().len() == 2);
}

/// Works with a stream's secret, and leaves no trace on its own stack. Runs `held` while endpoints exist.
fn use_secret(disguised: &[u8], held: impl FnOnce()) {
    fn endpoint(
        peer: &dyn UnconnectedEndpoint,
        own: Box<dyn UnconnectedEndpoint>,
        socket: OwnedFd,
        role: StreamRole,
        disguised: &[u8],
    ) -> Endpoint {
        let mut address = peer.address().try_to_owned().unwrap();
        let (descriptor, token, secret) = (socket, [1; Stream::TOKEN], Some(secret(disguised)));
        address.stream = Some(Stream { descriptor, role, token, secret });
        own.connect(address, 1000).unwrap()
    }

    let open = || Tcp::new().open(&OpenRequest::new(1 << 20, 1 << 20)).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let (left, right) = (open(), open());
    let other = open();
    let left = endpoint(right.as_ref(), left, near.into(), StreamRole::Source, disguised);
    let right = endpoint(other.as_ref(), right, far.into(), StreamRole::Target, disguised);
    let (Endpoint::TwoSided(mut left), Endpoint::TwoSided(mut right)) = (left, right) else {
        panic!("it has two sides");
    };
    let mut send = |len| -> Result<(), TransportError> {
        left.reserve(len)?;
        left.commit(len, 0)?;
        while right.poll()?.is_none() {
            left.progress()?;
        }
        right.release();
        Ok(())
    };
    [64, 40_000, 64].into_iter().for_each(|len| send(len).unwrap());
    held();
}

/// Returns a stream's keys (`docs/reference/protocol.md`): first chain, first key and next chain of each direction.
fn derived(secret: &[u8], token: &[u8]) -> Vec<[u8; 32]> {
    fn expand(prk: &Prk, label: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        prk.expand(&[label.as_bytes()], HKDF_SHA256).unwrap().fill(&mut bytes).unwrap();
        bytes
    }
    let root = Salt::new(HKDF_SHA256, token).extract(secret);
    ["farjump tcp source to target", "farjump tcp target to source"]
        .into_iter()
        .flat_map(|label| {
            let chain = expand(&root, label);
            let prk = Prk::new_less_safe(HKDF_SHA256, &chain);
            [chain, expand(&prk, "farjump tcp key"), expand(&prk, "farjump tcp chain")]
        })
        .collect()
}

/// Returns the secret without leaving another copy.
fn secret(disguised: &[u8]) -> Secret {
    #[inline(never)]
    fn make(disguised: &[u8]) -> Secret {
        Secret::from_bytes(std::array::from_fn(|at| disguised[at] ^ MASK))
    }
    let secret = make(disguised);
    clear_stack();
    secret
}

/// Overwrites the bytes that this program itself has put on the stack.
#[inline(never)]
fn clear_stack() {
    std::hint::black_box(&mut [0_u8; 128 << 10]);
}

#[test]
fn no_trace_of_a_streams_secret_outlasts_its_endpoint() {
    if let Some((folder, _watchdog)) = path_of_helper() {
        let mut disguised: Vec<_> =
            fs::read(folder.join("disguised")).unwrap().chunks(32).map(Vec::from).collect();
        let both = disguised.drain(..2).collect::<Vec<_>>().concat();
        let held = secret(&both);
        let found = traces(std::slice::from_ref(&both));
        assert_eq!(found.len(), 4, "one copy, of four parts: {found:?}");
        drop(held);
        use_secret(&both, || {
            // For each direction the endpoints have the key and the next chain. The inputs of both are gone.
            for (number, disguised) in disguised.iter().enumerate() {
                let found = traces(std::slice::from_ref(disguised));
                assert_eq!(found.is_empty(), number % 3 == 0, "{number}: {found:?}");
            }
        });
        clear_stack();
        disguised.push(both);
        assert_eq!(traces(&disguised), [""; 0]);
        return;
    }
    let place = Place::new();
    let folder = place.folder.path();
    let secret: [u8; Secret::LEN] = std::array::from_fn(|at| (at as u8).wrapping_mul(73) ^ 0x47);
    let derived = derived(&secret, &[1; Stream::TOKEN]).concat();
    let disguised: Vec<_> = secret.iter().chain(&derived).map(|byte| byte ^ MASK).collect();
    fs::write(folder.join("disguised"), disguised).unwrap();
    run_child(this_test!(), folder);
}

/// A secret, disguised, and its number of traces in memory when it was noted.
type Noted = (Vec<u8>, usize);

/// `tcp` that notes the secrets that it gets.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<Noted>>>);

struct UnconnectedSpy(Spy, Box<dyn UnconnectedEndpoint>);

impl Transport for Spy {
    fn name(&self) -> &str {
        farjump_transports::tcp::NAME
    }

    fn capabilities(&self) -> Capabilities {
        Tcp::new().capabilities()
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        Ok(Box::new(UnconnectedSpy(self.clone(), Tcp::new().open(request)?)))
    }
}

impl UnconnectedEndpoint for UnconnectedSpy {
    fn address(&self) -> LocalAddress<'_> {
        self.1.address()
    }

    fn connect(self: Box<Self>, peer: Address, deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let secret = peer.stream.as_ref().and_then(|stream| stream.secret.as_ref()).expect("it is sealed");
        let disguised: Vec<_> = secret.as_bytes().iter().map(|byte| byte ^ MASK).collect();
        let found = traces(std::slice::from_ref(&disguised)).len();
        self.0.0.lock().unwrap().push((disguised, found));
        clear_stack();
        self.1.connect(peer, deadline_ms)
    }
}

/// Runs a target's handshake with the next source over `tcp`.
fn accept_next(listener: &Listener, transports: &mut [Box<dyn Transport>]) -> Handshake {
    let mut arrival = Arrival::new(accept(listener).unwrap(), target_options());
    let mut others: Vec<Arrival> = Vec::new();
    loop {
        if let Progress::Handshake(handshake) = arrival.advance(transports).unwrap() {
            return *handshake;
        }
        let control = listener.accept().unwrap();
        others.extend(control.map(|control| Arrival::new(control, target_options())));
        others.retain_mut(|other| match other.advance(transports).unwrap() {
            Progress::Stream(stream) => {
                arrival.take_stream(*stream).unwrap();
                false
            }
            _ => true,
        });
        thread::yield_now();
    }
}

#[test]
fn no_trace_of_exchanged_shares_outlasts_the_handshake() {
    if !is_alone(this_test!()) {
        return;
    }
    let spy = Spy::default();
    let tcp = key(7);
    let listener = listener(&tcp);
    let handshake = thread::scope(|scope| {
        let source = scope.spawn(|| {
            let mut options = source_options();
            options.tcp = tcp.clone();
            let mut transports: [Box<dyn Transport>; 1] = [Box::new(spy.clone())];
            connect_target(listener.address(), &mut transports, &options, far()).unwrap()
        });
        let target = accept_next(&listener, &mut [Box::new(spy.clone())]);
        (source.join().unwrap(), target)
    });
    let noted = std::mem::take(&mut *spy.0.lock().unwrap());
    let [(disguised, found), (other, also_found)] = &noted[..] else { panic!("two ends") };
    assert_eq!(disguised, other, "both sides have the same shares");
    assert!(*found >= 4 && *also_found >= 4, "they are not found where they are: {found}, {also_found}");
    clear_stack();
    let secrets = [disguised.clone()];
    assert_eq!(traces(&secrets), [""; 0], "the link is made");
    drop(handshake);
    assert_eq!(traces(&secrets), [""; 0], "the link has ended");
}

/// Runs the test `test` in another process, whose role is `folder`.
fn run_child(test: &str, folder: &Path) {
    HelperProcess::of_test(test, &[folder.to_str().unwrap()]).succeeds();
}

#[test]
fn no_trace_of_a_key_outlasts_all_its_users() {
    if let Some((folder, _watchdog)) = path_of_helper() {
        let mut disguised = Vec::new();
        File::open(folder.join("disguised")).unwrap().read_to_end(&mut disguised).unwrap();
        let disguised: Vec<_> = disguised
            .chunks_exact(32 + 64)
            .flat_map(|one| [one[..32].to_vec(), one[32..].to_vec()])
            .collect();
        let held = Key::read(&folder.join("taken")).unwrap();
        assert_eq!(traces(&disguised).len(), 2, "one copy, of two halves: {:?}", traces(&disguised));
        drop(held);
        assert_eq!(traces(&disguised), [""; 0], "a key was read");
        // On a stack that stays, and on one that is used further.
        use_keys(&folder);
        let found = traces(&disguised);
        assert_eq!(found, [""; 0]);
        return;
    }
    let place = Place::new();
    let folder = place.folder.path();
    let mut disguised = Vec::new();
    for (number, name) in ["taken", "other"].into_iter().enumerate() {
        let key: [u8; 32] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ (91 + number as u8));
        let digits = Key::from_bytes(key).digits();
        disguised.extend(key.iter().chain(digits.trim().as_bytes()).map(|byte| byte ^ MASK));
        for file in [name, "file"] {
            fs::write(folder.join(file), digits.as_bytes()).unwrap();
            fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    fs::copy(folder.join("taken"), folder.join("file")).unwrap();
    fs::write(folder.join("disguised"), disguised).unwrap();
    run_child(this_test!(), folder);
}
