//! Cost of a call across the boundary to C, beside the same call in Rust: `cargo bench --package farjump-c`.
//!
//! Source and target are on one thread, so that neither waits and the other core's load does not matter: some
//! calls are timed, then the target runs them untimed. Rounds of both sides alternate; the median times of a
//! call are printed, in nanoseconds.

use std::ffi::CString;
use std::hint::black_box;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use farjump::build::{Options, build};
use farjump::{Library, Link, Target};
use farjump_c::api::bytes::{farjump_bytes_new, farjump_bytes_t};
use farjump_c::api::library::{farjump_library_open, farjump_library_t};
use farjump_c::api::link::pending::farjump_pending_wait;
use farjump_c::api::link::{farjump_link_connect, farjump_link_inject, farjump_link_send, farjump_link_t};
use farjump_c::api::status::farjump_status_t::FARJUMP_OK;

/// Calls that are timed together, and number of repetitions.
const CALLS: usize = 64;
const ROUNDS: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(10);

/// Polls until the target has run all sent frames.
fn run(target: &mut Target<'_>, mut frames: usize) {
    while frames > 0 {
        frames -= target.poll().expect("the target runs");
    }
}

/// Returns the median of some times of [`CALLS`] calls, in nanoseconds for one.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / CALLS as f64
}

/// Runs `act` on another thread while this one polls the target: connecting waits for those polls.
fn meanwhile<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        while !acting.is_finished() {
            target.poll().expect("the target runs");
        }
        acting.join().expect("it is done")
    })
}

fn main() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let library = folder.path().join("libecho.so");
    let source = Path::new(farjump_fixtures::IFUNCS).join("echo.c");
    let options = Options { inputs: vec![source], output: library.clone(), ..Options::default() };
    build(&options).expect("a C compiler is here");
    let address = format!("unix:{}", folder.path().join("t.sock").display());
    let mut target = Target::listen(&address).build().expect("the target listens");

    let rust_library = Library::open(&library).expect("it was built");
    let link = meanwhile(&mut target, || Link::connect(&address)).expect("they connect");

    let text = |text: &str| CString::new(text).expect("no zero byte");
    let (c_address, c_path) = (text(&address), text(&library.to_string_lossy()));
    let mut c_library: *mut farjump_library_t = ptr::null_mut();
    let mut reply: *mut farjump_bytes_t = ptr::null_mut();
    // SAFETY: texts and variables for pointers, as the header requires.
    unsafe {
        assert_eq!(farjump_library_open(c_path.as_ptr(), &mut c_library), FARJUMP_OK);
        assert_eq!(farjump_bytes_new(&mut reply), FARJUMP_OK);
    }
    let c_link = meanwhile(&mut target, || {
        let mut link: *mut farjump_link_t = ptr::null_mut();
        // SAFETY: texts and variables for pointers, as the header requires.
        assert_eq!(unsafe { farjump_link_connect(c_address.as_ptr(), ptr::null(), &mut link) }, FARJUMP_OK);
        link.expose_provenance()
    });
    let c_link: *mut farjump_link_t = ptr::with_exposed_provenance_mut(c_link);

    // Hidden from the optimizer: C calls them from outside.
    let (send, inject, wait) = black_box((
        farjump_link_send as unsafe extern "C" fn(_, _, _, _) -> _,
        farjump_link_inject as unsafe extern "C" fn(_, _, _, _, _) -> _,
        farjump_pending_wait as unsafe extern "C" fn(_, _, _, _) -> _,
    ));
    let args = [7_u8; 8];
    let (mut rust_sends, mut c_sends, mut rust_calls, mut c_calls) = (vec![], vec![], vec![], vec![]);
    let mut buffer = Vec::with_capacity(64);
    // One call of each link stays pending. The only call in flight may take the rest of the mailbox until the target
    // has run it. The target does not run it while other calls follow on this thread.
    link.inject(&rust_library, &args).expect("there is room").into_raw();
    let mut held = 0;
    // SAFETY: an open link and library, so many bytes, and a variable for the number.
    let sent =
        unsafe { inject(c_link, c_library.cast_const(), args.as_ptr().cast(), args.len(), &raw mut held) };
    assert_eq!(sent, FARJUMP_OK);
    run(&mut target, 2);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for _ in 0..CALLS {
            link.send(&rust_library, black_box(&args)).expect("there is room");
        }
        rust_sends.push(begun.elapsed());
        run(&mut target, CALLS);

        let begun = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: an open link and library, and so many bytes.
            let sent =
                unsafe { send(c_link, c_library.cast_const(), black_box(&args).as_ptr().cast(), args.len()) };
            assert_eq!(sent, FARJUMP_OK);
        }
        c_sends.push(begun.elapsed());
        run(&mut target, CALLS);

        let begun = Instant::now();
        let calls: [u32; CALLS] = std::array::from_fn(|_| {
            link.inject(&rust_library, black_box(&args)).expect("there is room").into_raw()
        });
        let mut taken = begun.elapsed();
        run(&mut target, CALLS);
        let begun = Instant::now();
        for call in calls {
            buffer.clear();
            let call = link.pending_from_raw(call).expect("it is in flight");
            call.wait_into(PATIENCE, &mut buffer).expect("it was answered");
        }
        taken += begun.elapsed();
        rust_calls.push(taken);

        let begun = Instant::now();
        let calls: [u64; CALLS] = std::array::from_fn(|_| {
            let mut call = 0;
            // SAFETY: an open link and library, so many bytes, and a variable for the number.
            let sent = unsafe {
                inject(
                    c_link,
                    c_library.cast_const(),
                    black_box(&args).as_ptr().cast(),
                    args.len(),
                    &raw mut call,
                )
            };
            assert_eq!(sent, FARJUMP_OK);
            call
        });
        let mut taken = begun.elapsed();
        run(&mut target, CALLS);
        let begun = Instant::now();
        for call in calls {
            // SAFETY: an open link, and bytes that nothing else uses.
            assert_eq!(unsafe { wait(c_link, call, PATIENCE.as_nanos() as u64, reply) }, FARJUMP_OK);
        }
        taken += begun.elapsed();
        c_calls.push(taken);
    }
    println!("{:24}{:>8}{:>8}{:>8}", "ns for each", "Rust", "C", "more");
    for (name, rust, c) in [("send", rust_sends, c_sends), ("inject and wait", rust_calls, c_calls)] {
        let (rust, c) = (median(rust), median(c));
        println!("{name:24}{rust:8.1}{c:8.1}{:8.1}", c - rust);
    }
}
