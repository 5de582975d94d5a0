//! Linked code as debuggers see it: memory that ptrace(2) can write, and GDB's JIT interface.

use crate::code;
use std::fs;
use std::sync::Arc;

use crate::code::{DECREMENT, INCREMENT, image, importing, text};
use crate::fixture::Fixture;
use farjump_builder::{Options, build};
use farjump_core::image::{ImageParts, ImageView, SPAN_DISTANCE};
use farjump_loader::{Arena, Error, LinkedImage, Resolver, Store, Symbols, code_id};
use object::read::elf::{ElfFile64, SectionHeader, Sym};
use object::{LittleEndian, elf};

const LITTLE: LittleEndian = LittleEndian;
const SUM: &str = "
#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(sum)
static unsigned long calls;
__attribute__((noinline)) static unsigned long add(const unsigned long *keys, size_t count)
{
    unsigned long total = ++calls;
    for (size_t i = 0; i < count; i++) total += keys[i];
    return total;
}
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    unsigned long total = add(payload, size / 8);
    (void)args;
    farjump_reply(&total, sizeof total);
}";

fn insert(store: &mut Store, image: &[u8]) -> Arc<LinkedImage> {
    store.insert(image, code_id(image), "code", &Resolver::default()).unwrap()
}

/// The rights of the mapping at `address`, such as `r-xp` (proc_pid_maps(5)).
fn rights(address: u64) -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split_once(' ').unwrap().0;
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    });
    line.unwrap().split(' ').nth(1).unwrap().to_owned()
}

fn no_page_is_writable_and_executable() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().all(|line| !line.contains("rwx")), "{maps}");
}

#[test]
fn each_image_has_private_pages_that_are_written_before_they_are_executed() {
    let arena = Arena::for_debuggers(64 * 1024).unwrap();
    let mut store = Store::new(arena.clone());
    let bytes = ImageParts { bss_len: 64, ..text(&INCREMENT) }.encode().unwrap();
    let first = insert(&mut store, &bytes);
    let second = insert(&mut store, &image(&DECREMENT));
    no_page_is_writable_and_executable();
    let address = first.block().address();
    assert_eq!((address % 4096, second.block().address() - address), (0, 4096));
    assert_eq!((&*rights(address), &*rights(address + SPAN_DISTANCE)), ("r-xp", "rw-p"));
    assert_eq!(arena.used(), 8192);
    let mut number = 5_u64;
    for _ in 0..3 {
        // SAFETY: the code adds one to the word that it gets, the other subtracts one.
        unsafe { (first.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    }
    // SAFETY: as above.
    unsafe { (second.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    assert_eq!(number, 7);

    // Freed code becomes traps, and its pages are reused.
    assert!(store.drop_code(&code_id(&bytes)));
    drop(first);
    let start = address as usize as *const u8;
    // SAFETY: the arena's code is mapped readable, and only this thread writes to it, between the calls.
    let page = unsafe { std::slice::from_raw_parts(start, 4096) };
    assert!(page.iter().all(|&byte| byte == code::TRAP));
    assert_eq!(rights(address), "r-xp");
    let again = insert(&mut store, &bytes);
    assert_eq!(again.block().address(), address);
    // SAFETY: as above.
    unsafe { (again.main())(std::ptr::null_mut(), 0, (&raw mut number).cast()) };
    assert_eq!(number, 8);
    no_page_is_writable_and_executable();
}

#[test]
fn an_arena_for_debuggers_is_full_when_its_pages_are() {
    let arena = Arena::for_debuggers(64 * 1024).unwrap();
    let bytes = image(&[0; 4096]);
    let view = ImageView::new_checked(&bytes).unwrap();
    let unresolved = importing("absent");
    // Failing to place an image leaves nothing behind.
    arena.place(&ImageView::new_checked(&unresolved).unwrap(), |_| None).unwrap_err();
    assert_eq!(arena.used(), 0);
    let blocks: Vec<_> = (0..8).map(|_| arena.place(&view, |_| None).unwrap()).collect();
    let error = arena.place(&view, |_| None).unwrap_err();
    assert!(matches!(error, Error::ArenaFull { used: 65536, largest: 0, .. }), "{error}");
    drop(blocks);
    assert_eq!(arena.used(), 0);
}

/// The general registers, in the numbers of core files' notes.
const NT_PRSTATUS: usize = 1;

/// The instruction that traps, the part of a word that it fills, and the bytes by which it moves the program counter:
/// `int3`.
#[cfg(target_arch = "x86_64")]
const TRAP: libc::c_long = 0xcc;
#[cfg(target_arch = "x86_64")]
const TRAP_MASK: libc::c_long = 0xff;
#[cfg(target_arch = "x86_64")]
const TRAP_RAN: u64 = 1;

/// The same constants for `brk #0`.
#[cfg(target_arch = "aarch64")]
const TRAP: libc::c_long = 0xd420_0000;
#[cfg(target_arch = "aarch64")]
const TRAP_MASK: libc::c_long = 0xffff_ffff;
#[cfg(target_arch = "aarch64")]
const TRAP_RAN: u64 = 0;

/// The same constants for `ebreak`.
#[cfg(target_arch = "riscv64")]
const TRAP: libc::c_long = 0x0010_0073;
#[cfg(target_arch = "riscv64")]
const TRAP_MASK: libc::c_long = 0xffff_ffff;
#[cfg(target_arch = "riscv64")]
const TRAP_RAN: u64 = 0;

#[cfg(target_arch = "x86_64")]
fn program_counter(registers: &mut libc::user_regs_struct) -> &mut u64 {
    &mut registers.rip
}

#[cfg(target_arch = "aarch64")]
fn program_counter(registers: &mut libc::user_regs_struct) -> &mut u64 {
    &mut registers.pc
}

#[cfg(target_arch = "riscv64")]
fn program_counter(registers: &mut libc::user_regs_struct) -> &mut u64 {
    &mut registers.pc
}

/// Writes a trap over the first byte of code in `arena` by ptrace. Returns ptrace's error, or whether the code then
/// traps there.
fn with_a_trap(arena: fn(usize) -> Result<Arena, Error>) -> Result<bool, std::io::Error> {
    let mut pipe = [0; 2];
    // SAFETY: two descriptors fit the array.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child allocates, which is sound after a fork with this C library, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut store = Store::new(arena(64 * 1024).unwrap());
        let linked = insert(&mut store, &image(&INCREMENT));
        let mut number = 0_u64;
        let address = linked.block().address().to_ne_bytes();
        // SAFETY: the address fits the pipe. The alarm ends a child whose parent is gone. The code adds one to the
        // word.
        unsafe {
            libc::alarm(60);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::write(pipe[1], address.as_ptr().cast(), 8);
            libc::raise(libc::SIGSTOP);
            (linked.main())(std::ptr::null_mut(), 0, (&raw mut number).cast());
            libc::_exit(i32::try_from(number).unwrap_or(9));
        }
    }
    let (mut address, mut status) = ([0; 8], 0);
    // SAFETY: the child is this process's. The buffers have the lengths passed to the calls.
    unsafe {
        assert_eq!(libc::read(pipe[0], address.as_mut_ptr().cast(), 8), 8);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        let address = u64::from_ne_bytes(address);
        let code = libc::ptrace(libc::PTRACE_PEEKTEXT, child, address, 0);
        let written = libc::ptrace(libc::PTRACE_POKETEXT, child, address, (code & !TRAP_MASK) | TRAP);
        let why = std::io::Error::last_os_error();
        let result = if written == 0 {
            libc::ptrace(libc::PTRACE_CONT, child, 0, 0);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            let mut whole =
                libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
            libc::ptrace(libc::PTRACE_GETREGSET, child, NT_PRSTATUS, &raw mut whole);
            let trapped = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP;
            // Continues as a debugger does: restores the code, and runs it from its start.
            let counter = program_counter(&mut registers);
            let there = *counter == address + TRAP_RAN;
            libc::ptrace(libc::PTRACE_POKETEXT, child, address, code);
            *counter = address;
            libc::ptrace(libc::PTRACE_SETREGSET, child, NT_PRSTATUS, &raw const whole);
            libc::ptrace(libc::PTRACE_CONT, child, 0, 0);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            Ok(trapped && there && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1)
        } else {
            Err(why)
        };
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
        result
    }
}

#[test]
fn ptrace_writes_traps_where_debuggers_are_expected_and_nowhere_else() {
    match with_a_trap(Arena::for_debuggers) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            println!("skipped: a process may not be traced here: {error}");
            return;
        }
        result => assert!(result.unwrap(), "it stopped elsewhere"),
    }
    let error = with_a_trap(Arena::new).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
}

/// `struct jit_descriptor` and `struct jit_code_entry` of GDB's manual.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    changed: *const Entry,
    first: *const Entry,
}
#[repr(C)]
struct Entry {
    next: *const Entry,
    previous: *const Entry,
    file: *const u8,
    file_len: u64,
}

unsafe extern "C" {
    static mut __jit_debug_descriptor: Descriptor;
}

/// The files of the list, the newest first. Only the one test of this process changes it.
fn shown() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    // SAFETY: nothing changes the list while this runs, and its entries and files are alive.
    unsafe {
        let list = &raw const __jit_debug_descriptor;
        assert_eq!(((*list).version, (*list).action, (*list).changed.is_null()), (1, 0, true));
        let (mut next, mut previous) = ((*list).first, std::ptr::null());
        while let Some(entry) = next.as_ref() {
            assert_eq!(entry.previous, previous);
            files.push(std::slice::from_raw_parts(entry.file, entry.file_len as usize).to_vec());
            (next, previous) = (entry.next, next);
        }
    }
    files
}

/// Value and size of the symbol `name` of a file.
fn symbol(file: &[u8], name: &str) -> Option<(u64, u64)> {
    let elf = ElfFile64::<LittleEndian>::parse(file).unwrap();
    let symbols = elf.elf_symbol_table();
    let found = symbols.iter().find(|symbol| symbols.symbol_name(LITTLE, symbol) == Ok(name.as_bytes()))?;
    Some((found.st_value(LITTLE), found.st_size(LITTLE)))
}

/// Each section's name, with address and flags.
fn sections(file: &[u8]) -> Vec<(String, u64, bool)> {
    let elf = ElfFile64::<LittleEndian>::parse(file).unwrap();
    let table = elf.elf_section_table();
    let sections = table.iter().filter(|section| section.sh_type(LITTLE) != elf::SHT_NULL);
    let named = sections.map(|section| {
        let name = String::from_utf8(table.section_name(LITTLE, section).unwrap().to_vec()).unwrap();
        (name, section.sh_addr(LITTLE), section.sh_flags(LITTLE).contains(elf::SHF_ALLOC))
    });
    named.collect()
}

// One test, because the process has only one list.
#[test]
fn debuggers_see_code_with_its_symbols_until_it_is_dropped() {
    let fixture = Fixture::new();
    let source = fixture.write("sum.c", SUM);
    let plain = fixture.c("sum", SUM).unwrap();
    let without = Symbols::read(&plain.library).unwrap();
    let options = Options { debug: true, ..fixture.options("sum", &[source]) };
    let built = build(&options).unwrap();
    // With debugging information clang puts the instructions of a prologue for aarch64 into another order.
    if cfg!(target_arch = "x86_64") {
        assert_eq!(built.images[0].id, plain.images[0].id);
    }
    let symbols = Symbols::read(&built.library).unwrap();
    assert_eq!(symbols.iter().map(Symbols::id).collect::<Vec<_>>(), [built.images[0].id]);

    assert_eq!(shown(), [[0; 0]; 0]);
    let mut exports = farjump_loader::Exports::new();
    // SAFETY: the code is not called.
    unsafe { exports.insert("farjump_reply", std::ptr::without_provenance(64)) };
    let resolver = Resolver::new(exports);
    let mut store = Store::new(Arena::for_debuggers(64 * 1024).unwrap());
    let other = insert(&mut store, &image(&INCREMENT));
    let linked = store.insert(&built.images[0].bytes, built.images[0].id, "sum", &resolver).unwrap();
    let start = linked.block().address();
    // Symbols of other code have no effect.
    other.show(symbols.first());
    linked.show(symbols.first());
    linked.show(None);
    let [sum, code] = &*shown() else { panic!("{}", shown().len()) };
    assert_eq!(symbol(code, "code_main"), Some((other.block().entry(), INCREMENT.len() as u64)));
    assert_eq!(sections(code)[0], (".text".to_owned(), other.block().address(), true));
    assert_eq!(symbol(sum, "sum_main").map(|(value, _)| value), Some(linked.block().entry()));
    let inside = start..start + linked.block().code_len() as u64;
    assert!(inside.contains(&symbol(sum, "add").unwrap().0));
    assert_eq!(symbol(sum, "calls"), Some((start + SPAN_DISTANCE, 8)));
    for (name, address, placed) in sections(sum) {
        let expected = match name.as_str() {
            ".bss" => Some(start + SPAN_DISTANCE),
            ".text" => Some(start),
            _ if name.starts_with(".debug") || name.starts_with(".dyn") => None,
            _ => continue,
        };
        assert_eq!(placed.then_some(address), expected, "{name}");
    }
    // Line tables and other debugging information contain the address of each function.
    let addresses = |file: &[u8], address: u64| {
        file.windows(8).filter(|window| **window == address.to_le_bytes()).count()
    };
    assert!(addresses(sum, symbol(sum, "add").unwrap().0) > 2);

    drop(linked);
    assert!(store.drop_code(&built.images[0].id));
    assert_eq!(shown().len(), 1);
    // The library was built without -g: the file has its functions, but no lines, whose addresses would be wrong.
    let again = store.insert(&plain.images[0].bytes, plain.images[0].id, "sum", &resolver).unwrap();
    again.show(without.first());
    let sum = &shown()[0];
    assert!(symbol(sum, "add").is_some());
    assert!(sections(sum).iter().all(|(name, ..)| !name.starts_with(".debug")));
    drop((again, other, store));
    assert_eq!(shown(), [[0; 0]; 0]);
}

#[test]
fn files_without_symbols_are_refused_by_name() {
    let fixture = Fixture::new();
    let plain = fixture.write("plain.c", "int one(void) { return 1; }");
    let library = fixture.path("plain.so");
    fixture.run("cc", &["-shared", "-fPIC", plain.to_str().unwrap(), "-o", library.to_str().unwrap()]);
    let read = |path: &std::path::Path| Symbols::read(path).unwrap_err();
    assert!(matches!(read(&library), Error::NoSymbols { .. }));
    assert!(matches!(read(&plain), Error::NotALibrary { .. }));
    assert!(matches!(read(&fixture.path("none")), Error::NoSuchFile { .. }));
    let mut bytes = fs::read(&library).unwrap();
    bytes.truncate(100);
    fs::write(&library, bytes).unwrap();
    assert!(matches!(read(&library), Error::Malformed { .. }));
}
