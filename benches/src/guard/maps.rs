//! The mappings of another process, and the owner of each.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::Failure;

/// Bytes in a line of memory.
const LINE: u64 = 64;

/// Bytes in a page.
const PAGE: u64 = 4096;

/// Returns the numbers of the lines of `len` bytes at `address`.
pub(crate) fn lines_of(address: u64, len: u64) -> Range<u64> {
    address / LINE..(address + len.max(1)).div_ceil(LINE)
}

/// Returns the number of the page that contains an address.
pub(crate) fn page_of(address: u64) -> u64 {
    address / PAGE
}

/// Owner of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The program, which farjump is part of.
    Own,
    /// The ifunc: its payload routines in the library, and injected code.
    Ifunc,
    /// A transport's library.
    Library,
    /// The system, working for its last caller: libc, the loader, the kernel's page.
    System,
}

/// A line of memory, the same in all its mappings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Line {
    /// The shared memory that contains it; `None` for private memory.
    object: Option<usize>,
    /// Its number from the start of the object or of the address space.
    number: u64,
}

struct Mapping {
    owner: Owner,
    /// Whether its contents never change.
    fixed: bool,
    shared: Option<Shared>,
}

#[derive(Clone, Copy)]
struct Shared {
    /// Its index among the objects.
    object: usize,
    /// Added to an address, gives the offset in the object.
    shift: u64,
}

/// The mappings of a process at one moment.
pub(crate) struct Maps {
    /// By start address, with the end address.
    mappings: BTreeMap<u64, (u64, Mapping)>,
    /// Shared memory with an executable mapping. It is no mailbox: received code is kept there.
    executable: HashSet<usize>,
}

impl Maps {
    /// Reads the mappings of process `pid`, which runs program `own`. `ifunc` is the file name of its ifunc
    /// library.
    ///
    /// # Errors
    /// The system does not show them, or in another form than that of proc(5).
    pub(crate) fn read(pid: i32, own: &Path, ifunc: &str) -> Result<Maps, Failure> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Maps::parse(&text, own, ifunc)
            .ok_or_else(|| format!("/proc/{pid}/maps is not understood:\n{text}").into())
    }

    fn parse(text: &str, own: &Path, ifunc: &str) -> Option<Maps> {
        let mut maps = Maps { mappings: BTreeMap::new(), executable: HashSet::new() };
        let mut objects = BTreeMap::new();
        for line in text.lines() {
            // 7f0000000000-7f0000001000 rw-s 00002000 00:01 1234   /memfd:farjump (deleted)
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            let range = hexadecimal(start)?..hexadecimal(end)?;
            let rights = fields.next()?;
            let offset = hexadecimal(fields.next()?)?;
            let object = (fields.next()?.to_owned(), fields.next()?.to_owned());
            let path = fields.next().unwrap_or("").trim();
            let shared = rights.ends_with('s').then(|| {
                let next = objects.len();
                let object = *objects.entry(object).or_insert(next);
                Shared { object, shift: offset.wrapping_sub(range.start) }
            });
            if let Some(shared) = shared.filter(|_| rights.contains('x')) {
                maps.executable.insert(shared.object);
            }
            let owner = owner(path, own, ifunc);
            let fixed = shared.is_none() && path.starts_with('/') && !rights.contains('w');
            maps.mappings.insert(range.start, (range.end, Mapping { owner, fixed, shared }));
        }
        Some(maps)
    }

    /// Returns the owner of the code at `address`, and whether the code never changes.
    pub(crate) fn code(&self, address: u64) -> (Owner, bool) {
        self.at(address).map_or((Owner::Ifunc, false), |mapping| (mapping.owner, mapping.fixed))
    }

    /// Returns whether the memory at `address` is a file's and never changes. The linker places constants anew in each
    /// build: a table of functions lies in one line or in two.
    pub(crate) fn is_constant(&self, address: u64) -> bool {
        self.at(address).is_some_and(|mapping| mapping.fixed)
    }

    /// Returns the lines of `len` bytes at `address`.
    pub(crate) fn lines(&self, address: u64, len: u64) -> impl Iterator<Item = Line> {
        let shared = self.at(address).and_then(|mapping| mapping.shared);
        let start = address.wrapping_add(shared.map_or(0, |shared| shared.shift));
        lines_of(start, len).map(move |number| Line { object: shared.map(|shared| shared.object), number })
    }

    /// Returns whether a line is in memory that two processes would share, and not in received code.
    pub(crate) fn is_shared(&self, line: Line) -> bool {
        line.object.is_some_and(|object| !self.executable.contains(&object))
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        let (_, (end, mapping)) = self.mappings.range(..=address).next_back()?;
        (address < *end).then_some(mapping)
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Returns the owner of the code in the file at `path`.
fn owner(path: &str, own: &Path, ifunc: &str) -> Owner {
    const SYSTEM: [&str; 6] = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libpthread.so", "libdl.so"];
    let name = path.rsplit('/').next().unwrap_or("");
    if Path::new(path) == own {
        Owner::Own
    } else if path.starts_with("[v") || SYSTEM.iter().any(|system| name.starts_with(system)) {
        Owner::System
    } else if name == ifunc || !name.contains(".so") {
        Owner::Ifunc
    } else {
        Owner::Library
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 r-xp 00001000 fe:01 7 /opt/guard
5000-6000 rw-s 00002000 00:01 9 /memfd:ring (deleted)
8000-a000 rw-s 00001000 00:01 9 /memfd:ring (deleted)
b000-c000 rw-s 00000000 00:01 4 /dev/zero (deleted)
c000-d000 r-xs 00000000 00:01 4 /dev/zero (deleted)
e000-f000 r-xp 00000000 fe:01 8 /usr/lib/libucp.so.0.0.0
10000-11000 r-xp 00000000 fe:01 3 /usr/lib/libc.so.6
12000-13000 r-xp 00000000 fe:01 5 /tmp/a/libcounter.so
14000-15000 r-xp 00000000 00:00 0 [vdso]
16000-17000 rw-p 00000000 00:00 0 [heap]
";

    fn maps() -> Maps {
        Maps::parse(MAPS, Path::new("/opt/guard"), "libcounter.so").expect("maps as the system writes them")
    }

    #[test]
    fn the_owner_of_code_follows_from_its_mapped_file() {
        let maps = maps();
        for (address, expected) in [
            (0x2fff, (Owner::Own, true)),
            (0x3000, (Owner::Ifunc, false)),
            (0xc010, (Owner::Ifunc, false)),
            (0xe000, (Owner::Library, true)),
            (0x10000, (Owner::System, true)),
            (0x12000, (Owner::Ifunc, true)),
            (0x14000, (Owner::System, false)),
        ] {
            assert_eq!(maps.code(address), expected, "{address:#x}");
            assert_eq!(maps.is_constant(address), expected.1, "{address:#x}");
        }
    }

    #[test]
    fn a_line_of_shared_memory_is_the_same_wherever_it_is_mapped() {
        let maps = maps();
        let lines = |address, len| maps.lines(address, len).collect::<Vec<_>>();
        assert_eq!(lines(0x5040, 8), lines(0x9040, 8));
        assert_ne!(lines(0x5040, 8), lines(0x8040, 8));
        assert_eq!(lines(0x503f, 2).len(), 2);
        assert_eq!(lines(0x5000, 128).len(), 2);
        assert_eq!(lines(0x16000, 0).len(), 1);
    }

    #[test]
    fn memory_mapped_executable_anywhere_does_not_count_as_shared() {
        let maps = maps();
        let is_shared = |address| maps.lines(address, 1).all(|line| maps.is_shared(line));
        assert!(is_shared(0x5000));
        assert!(!is_shared(0xb000));
        assert!(!is_shared(0x16000));
    }
}
