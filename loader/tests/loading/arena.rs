//! The memory of injected code, as seen by the rest of the process and by other processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::code::{
    COUNT_UNTIL_STOPPED, DECREMENT, INCREMENT, TRAP, TRAP_SIGNAL, WRITE_ITSELF, image, importing,
    static_counter, text,
};
use farjump_core::image::{ImageParts, ImageView, PlaceError, SPAN_DISTANCE};
use farjump_fixtures::forked::{Forked, code_of_child};
use farjump_fixtures::helper_process::{is_alone, passed, role, test_in_role};
use farjump_fixtures::process::finish;
use farjump_fixtures::this_test;
use farjump_loader::{Arena, Error, LinkedImage, Refused, Resolver, Store, code_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn insert(store: &mut Store, image: &[u8]) -> Arc<LinkedImage> {
    store.insert(image, code_id(image), "code", &Resolver::default()).unwrap()
}

/// A line of `/proc/self/maps` (proc_pid_maps(5)).
#[derive(Debug)]
struct Mapped {
    start: u64,
    end: u64,
    rights: String,
    /// Device and inode.
    object: String,
}

/// Returns whether there is a page at this address. Maps nothing itself.
fn is_mapped(address: u64) -> bool {
    let page = (address & !(rustix::param::page_size() as u64 - 1)) as *mut std::ffi::c_void;
    // SAFETY: with no flag but `ASYNC`, the call only looks up the page (msync(2)), and writes nothing.
    unsafe { rustix::mm::msync(page, 1, rustix::mm::MsyncFlags::ASYNC) }.is_ok()
}

fn maps() -> Vec<Mapped> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        Mapped {
            start: u64::from_str_radix(start, 16).unwrap(),
            end: u64::from_str_radix(end, 16).unwrap(),
            rights: fields[1].to_owned(),
            object: format!("{} {}", fields[3], fields[4]),
        }
    };
    text.lines().map(parse).collect()
}

fn at(maps: &[Mapped], address: u64) -> &Mapped {
    maps.iter().find(|mapped| (mapped.start..mapped.end).contains(&address)).unwrap()
}

#[test]
fn no_page_is_writable_and_executable_while_code_runs() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    // Statics give the image a second span. The code only counts until it is stopped.
    let bytes = ImageParts { bss_len: 64, ..text(&COUNT_UNTIL_STOPPED) }.encode().unwrap();
    let linked = insert(&mut store, &bytes);
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let runner = std::thread::spawn({
        let (linked, words) = (Arc::clone(&linked), Arc::clone(&words));
        // SAFETY: the code reads the first word and writes the second, as the loops below do, atomically, as
        // aligned words are.
        move || unsafe { (linked.main())(std::ptr::null_mut(), 0, words.as_ptr().cast_mut().cast()) }
    });
    let count = || words[1].load(Ordering::SeqCst);
    while count() == 0 && !runner.is_finished() {
        std::thread::yield_now();
    }

    let before = count();
    let maps = maps();
    let (code, data) = (linked.block().address(), linked.block().address() + SPAN_DISTANCE);
    assert_eq!(at(&maps, code).rights, "r-xs");
    assert_eq!(at(&maps, data).rights, "rw-p");
    let object = &at(&maps, code).object;
    let doubles: Vec<_> = maps.iter().filter(|mapped| &mapped.object == object).collect();
    let mut rights: Vec<_> = doubles.iter().map(|mapped| mapped.rights.as_str()).collect();
    rights.sort_unstable();
    assert_eq!(rights, ["r-xs", "rw-s"], "the code is mapped twice: {doubles:?}");
    for mapped in &maps {
        assert!(!(mapped.rights.contains('w') && mapped.rights.contains('x')), "{mapped:?}");
    }
    while count() == before && !runner.is_finished() {
        std::thread::yield_now();
    }
    assert!(!runner.is_finished(), "the code was running all the time");
    words[0].store(1, Ordering::SeqCst);
    runner.join().unwrap();
}

#[test]
fn code_cannot_write_its_own_got() {
    if !role().is_empty() {
        let mut store = Store::new(Arena::new(64 * 1024).unwrap());
        let linked = insert(&mut store, &image(&WRITE_ITSELF));
        // SAFETY: it ends this process, which exists for that.
        unsafe { (linked.main())(std::ptr::null_mut(), 0, std::ptr::null_mut()) };
        return;
    }
    let done = finish(&mut test_in_role(this_test!(), &["alone"]));
    assert_eq!(done.code, 128 + libc::SIGSEGV, "{}", done.err);
}

#[test]
fn code_that_was_freed_and_all_that_never_was_code_is_traps() {
    let arena = Arena::new(64 * 1024).unwrap();
    let mut store = Store::new(arena.clone());
    let bytes = image(&INCREMENT);
    let linked = insert(&mut store, &bytes);
    let start = linked.block().address() as usize as *const u8;
    // SAFETY: the arena's code is mapped readable for its length as long as the arena, and only this thread
    // writes to it, between the calls.
    let code = || unsafe { std::slice::from_raw_parts(start, arena.capacity()) }.to_vec();
    let placed = code();
    assert_eq!(placed[..INCREMENT.len()], INCREMENT);
    assert!(placed[INCREMENT.len()..].iter().all(|&byte| byte == TRAP));
    assert!(store.drop_code(&code_id(&bytes)));
    assert_eq!(code(), placed, "it is held");
    drop(linked);
    assert!(code().iter().all(|&byte| byte == TRAP));
}

#[test]
fn calling_code_that_was_freed_ends_the_process_at_once() {
    if !role().is_empty() {
        let mut store = Store::new(Arena::new(64 * 1024).unwrap());
        let bytes = image(&INCREMENT);
        let linked = insert(&mut store, &bytes);
        let main = linked.main();
        let mut number = 0_u64;
        // SAFETY: the code is held.
        unsafe { main(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
        assert_eq!(number, 1);
        store.drop_code(&code_id(&bytes));
        drop(linked);
        // SAFETY: it ends this process, which exists for that.
        unsafe { main(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
        return;
    }
    let done = finish(&mut test_in_role(this_test!(), &["alone"]));
    assert_eq!(done.code, 128 + TRAP_SIGNAL, "{}", done.err);
}

#[test]
fn an_image_that_cannot_be_resolved_leaves_nothing_behind() {
    let arena = Arena::new(64 * 1024).unwrap();
    let bytes = importing("absent");
    let view = ImageView::new_checked(&bytes).unwrap();
    let error = arena.place(&view, |_| None).unwrap_err();
    assert!(matches!(error, Error::Place(PlaceError::Unresolved(0))));
    assert_eq!(arena.used(), 0);
    let block = arena.place(&view, |_| Some(1)).unwrap();
    assert_eq!(block.entry(), block.address());
    assert_eq!(arena.used(), 128);
}

#[test]
fn images_stand_a_line_apart() {
    let arena = Arena::new(64 * 1024).unwrap();
    let bytes = image(&[0; 64]);
    let view = ImageView::new_checked(&bytes).unwrap();
    let blocks: Vec<_> = (0..4).map(|_| arena.place(&view, |_| None).unwrap()).collect();
    for pair in blocks.windows(2) {
        assert_eq!(pair[1].address() - pair[0].address(), 128);
    }
}

/// Calls the code of a counter of calls, which has a static.
fn count(linked: &LinkedImage) -> u64 {
    let mut number = 0_u64;
    // SAFETY: the code writes one word to its arguments.
    unsafe { (linked.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    number
}

#[test]
fn a_forked_child_copies_code_and_statics_and_places_nothing() {
    // A thread that forks keeps the memory of all arenas of its process until the child has its copy.
    if !is_alone(this_test!()) {
        return;
    }
    let arena = Arena::new(64 * 1024).unwrap();
    let mut store = Store::new(arena.clone());
    let span1 = static_counter();
    let bytes = ImageParts { bss_len: 8, ..text(&span1) }.encode().unwrap();
    let linked = insert(&mut store, &bytes);
    let (code, data) = (linked.block().address(), linked.block().address() + SPAN_DISTANCE);
    let ours = maps();
    let writable_alias = ours
        .iter()
        .find(|mapped| mapped.object == at(&ours, code).object && mapped.rights == "rw-s")
        .map(|mapped| mapped.start)
        .unwrap();
    assert_eq!(count(&linked), 1);
    let kept = Arc::clone(&linked);

    let exit_code = code_of_child(|| {
        let theirs = maps();
        let rights = |address| {
            let mapped = theirs.iter().find(|mapped| (mapped.start..mapped.end).contains(&address));
            mapped.map_or("", |mapped| &*mapped.rights)
        };
        if (rights(code), rights(data), rights(writable_alias)) != ("r-xp", "rw-p", "") {
            return 1;
        }
        let view = ImageView::new_checked(&bytes).unwrap();
        if !matches!(arena.place(&view, |_| None), Err(Error::ArenaForked)) {
            return 2;
        }
        let other = image(&DECREMENT);
        let refused = store.insert(&other, code_id(&other), "code", &Resolver::default());
        if !matches!(refused, Err(Refused::Arena { source: Error::ArenaForked, .. })) {
            return 3;
        }
        // The child's own child has the same.
        if count(&linked) != 2 || code_of_child(|| i32::from(count(&linked) != 3)) != 0 || count(&linked) != 3
        {
            return 4;
        }
        if ![code, data].into_iter().all(is_mapped) {
            return 7;
        }
        drop((linked, kept, store, arena));
        // Checked at once: the next mapping of this process may take the place.
        if [code, data].into_iter().any(is_mapped) {
            return 5;
        }
        let mut own = Store::new(Arena::new(64 * 1024).unwrap());
        if count(&insert(&mut own, &bytes)) == 1 { 0 } else { 6 }
    });
    assert_eq!(exit_code, 0);
}

#[test]
fn code_and_statics_dropped_by_the_parent_stay_in_a_forked_child() {
    code_stays_in_a_child_of(Arena::new(64 * 1024).unwrap());
    code_stays_in_a_child_of(Arena::for_debuggers(64 * 1024).unwrap());
}

fn code_stays_in_a_child_of(arena: Arena) {
    let mut store = Store::new(arena);
    let span1 = static_counter();
    let bytes = ImageParts { bss_len: 8, ..text(&span1) }.encode().unwrap();
    let linked = insert(&mut store, &bytes);
    let (id, address) = (linked.id(), linked.block().address());
    assert_eq!(count(&linked), 1);
    let (mut dropped, mut tell) = std::io::pipe().unwrap();
    let child = Forked::start(|| {
        let read = std::io::Read::read(&mut dropped, &mut [0]).ok();
        i32::from(read != Some(1) || count(&linked) != 2)
    });
    assert_eq!(count(&linked), 2);
    drop(linked);
    assert!(store.drop_code(&id));
    let other = insert(&mut store, &image(&DECREMENT));
    assert_eq!(other.block().address(), address, "its space is used again");
    std::io::Write::write_all(&mut tell, &[1]).unwrap();
    assert_eq!(child.code(), 0, "the child's code or statics changed");
}

#[test]
fn a_fork_leaves_the_parent_what_it_had() {
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    let linked = insert(&mut store, &image(&INCREMENT));
    assert_eq!(code_of_child(|| 7), 7);
    let mut number = 0_u64;
    // SAFETY: the code writes one word to its arguments.
    unsafe { (linked.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    assert_eq!(number, 1);
    insert(&mut store, &image(&DECREMENT));
    assert_eq!(store.len(), 2);
}

#[test]
fn where_memory_may_not_become_executable_the_error_says_so() {
    // linux/prctl.h
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let zero: libc::c_ulong = 0;
    if !role().is_empty() {
        // SAFETY: takes rights from this process, which exists only for that.
        let set = unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, zero, zero, zero) };
        if set != 0 {
            eprintln!(
                "skipped: this kernel has no PR_SET_MDWE (Linux 6.3): {}",
                std::io::Error::last_os_error()
            );
            return;
        }
        match Arena::new(64 * 1024) {
            Err(Error::ExecForbidden { .. }) => eprintln!("forbidden"),
            other => panic!("{other:?}"),
        }
        return;
    }
    let text = passed(&mut test_in_role(this_test!(), &["alone"])).err;
    assert!(text.contains("forbidden") || text.contains("skipped"), "{text}");
    eprint!("{text}");
    let error = Error::ExecForbidden { source: std::io::Error::from_raw_os_error(libc::EACCES) };
    for cause in ["may not make memory executable", "SELinux", "noexec", "MemoryDenyWriteExecute"] {
        assert!(error.to_string().contains(cause), "{error}");
    }
}

#[test]
fn where_there_is_no_memory_the_error_says_so() {
    if !role().is_empty() {
        let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
        // SAFETY: takes memory from this process, which exists for that.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        eprintln!("{}", Arena::new(100_000).unwrap_err());
        return;
    }
    let text = passed(&mut test_in_role(this_test!(), &["alone"])).err;
    assert!(
        text.contains("no memory for an arena of 131072 bytes (reserving addresses: Cannot allocate memory"),
        "{text}"
    );
}

#[test]
fn the_advised_limit_is_above_the_current_one() {
    if !is_alone(this_test!()) {
        return;
    }
    // In KiB.
    let limit = 4 << 20;
    let rlimit = Rlimit { current: Some(limit << 10), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, rlimit).unwrap();
    let mut arenas = Vec::new();
    let error = loop {
        match Arena::new(64 * 1024) {
            Ok(arena) => arenas.push(arena),
            Err(error) => break error,
        }
        assert!(arenas.len() < 5, "an arena takes 1 GiB of addresses");
    };
    // Arenas made at the same time may be gone when the error is formatted.
    drop(arenas);
    let text = error.to_string();
    let (_, advised) = text.split_once("raise the limit to ").unwrap_or_else(|| panic!("{text}"));
    let advised: u64 = advised.split(' ').next().unwrap().parse().unwrap();
    assert!(advised > limit, "{text}");
}

#[test]
fn lengths_that_no_arena_can_have_are_refused() {
    for len in [0, SPAN_DISTANCE as usize + 1, usize::MAX] {
        let error = Arena::new(len).unwrap_err();
        assert!(matches!(error, Error::ArenaLength { len: asked, .. } if asked == len), "{error}");
    }
    assert_eq!(Arena::new(1).unwrap().capacity(), 64 * 1024);
}

#[test]
fn an_arena_that_is_dropped_gives_its_memory_back() {
    if !is_alone(this_test!()) {
        return;
    }
    let arena = Arena::new(64 * 1024).unwrap();
    let bytes = image(&INCREMENT);
    let block = arena.place(&ImageView::new_checked(&bytes).unwrap(), |_| None).unwrap();
    let object = at(&maps(), block.address()).object.clone();
    drop(arena);
    assert!(maps().iter().any(|mapped| mapped.object == object), "the block holds it");
    drop(block);
    assert!(maps().iter().all(|mapped| mapped.object != object));
}

fn faults() -> i64 {
    // SAFETY: all zeroes is a valid rusage, and the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt + usage.ru_majflt
    }
}

#[test]
fn placing_and_running_waits_for_no_page() {
    const IMAGES: usize = 200;
    // After a fork by another thread, each first write to a page of statics would be a fault.
    if !is_alone(this_test!()) {
        return;
    }
    let arena = Arena::new(IMAGES * 8192).unwrap();
    let mut span1 = static_counter();
    span1.resize(4096, 0);
    let bytes = ImageParts { bss_len: 4096, ..text(&span1) }.encode().unwrap();
    let view = ImageView::new_checked(&bytes).unwrap();
    let mut blocks = Vec::with_capacity(IMAGES);
    let mut number = 0_u64;
    let before = faults();
    for _ in 0..IMAGES {
        let block = arena.place(&view, |_| None).unwrap();
        // SAFETY: the block exists, and the code writes one word to its arguments.
        unsafe {
            let main: unsafe extern "C" fn(*mut u8, usize, *mut u64) =
                std::mem::transmute(block.entry() as usize);
            main(std::ptr::null_mut(), 0, &raw mut number);
        }
        assert_eq!(number, 1);
        blocks.push(block);
    }
    let faults = faults() - before;
    assert!(faults < IMAGES as i64 / 4, "{faults} faults for {IMAGES} images of a page");
}

#[test]
fn threads_that_share_an_arena_do_not_disturb_one_another() {
    let arena = Arena::new(64 * 1024).unwrap();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0_u8..4 {
            let (arena, barrier) = (arena.clone(), &barrier);
            scope.spawn(move || {
                let step: i64 = if thread % 2 == 0 { 1 } else { -1 };
                let text = if thread % 2 == 0 { INCREMENT } else { DECREMENT };
                let bytes = image(&[&text[..], &[thread]].concat());
                let mut store = Store::new(arena);
                barrier.wait();
                for round in 0..300 {
                    let linked = insert(&mut store, &bytes);
                    let mut number = round;
                    // SAFETY: the code changes one word at its arguments.
                    unsafe { (linked.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
                    assert_eq!(number, round + step);
                    assert!(store.drop_code(&linked.id()));
                }
            });
        }
    });
    assert_eq!(arena.used(), 0);
}

#[test]
fn an_image_written_while_it_is_read_is_whole_or_refused() {
    let bytes = image(&[&INCREMENT[..], &[0; 300]].concat());
    // SAFETY: a new mapping, at an address that the system chooses.
    let shared = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    }
    .cast::<u8>();
    // SAFETY: the page is longer than the image.
    unsafe { shared.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let last = shared.wrapping_add(bytes.len() - 1);
    let writer = Forked::start(|| {
        for value in (0_u8..2).cycle() {
            // SAFETY: the child only writes to the page; the byte is the last of the image.
            unsafe { last.write_volatile(value) };
        }
        0
    });
    let mut store = Store::new(Arena::new(64 * 1024).unwrap());
    let (mut placed, mut refused) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while (placed < 1000 || refused < 1000) && Instant::now() < deadline {
        let mut copy = vec![0; bytes.len()];
        // SAFETY: the page is readable, only another process writes to it, and the copy is as long.
        unsafe { farjump_core::shared::copy_out(shared, copy.as_mut_ptr(), copy.len()) };
        let result = store.insert(&copy, code_id(&bytes), "code", &Resolver::default());
        match result {
            Ok(linked) => {
                assert_eq!(linked.image(), bytes);
                placed += 1;
                store.drop_code(&linked.id());
            }
            Err(Refused::IdMismatch { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    drop(writer);
    // SAFETY: nothing uses the page from here on.
    unsafe { libc::munmap(shared.cast(), 4096) };
    assert!(
        placed > 0 && refused > 0,
        "{placed} placed, {refused} refused: nothing happened at the same time"
    );
}
