//! Mode in place: the processor's cost of running freshly written lines. `farjump perf latency --image`
//! measures it over a link.

use std::ffi::c_void;
use std::hint::black_box;
use std::time::Instant;

use farjump::core::icache;
use memmap2::MmapOptions;

use crate::Failure;
use crate::report::median;

/// Numbers of lines that are called in turn.
const PLACES: [usize; 4] = [1, 16, 256, 4096];
const TURNS: usize = 100_000;
const ROUNDS: usize = 5;
const LINE: usize = 64;

/// The operation on a line before its function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    ReadWord,
    StoreWord,
    Rewrite,
    RewriteAndSerialise,
}

/// Prints the cost of a call, in nanoseconds, by whether its line was written before.
pub(crate) fn layers() -> Result<(), Failure> {
    let lines = Lines::new()?;
    println!("\na call of a function of one line, in place; medians of {ROUNDS} rounds of {TURNS}, in ns");
    println!(
        "{:<32} {:>8} {:>8} {:>8} {:>8}  places in turn",
        "", PLACES[0], PLACES[1], PLACES[2], PLACES[3]
    );
    for (before, what) in [
        (Before::Nothing, "the same lines again"),
        (Before::ReadWord, "a word of the line read"),
        (Before::StoreWord, "a word of the line stored"),
        (Before::Rewrite, "the line written anew"),
        (Before::RewriteAndSerialise, "the same, and serialised"),
    ] {
        let times = PLACES.map(|places| {
            lines.turn(before, places);
            median((0..ROUNDS).map(|_| lines.turn(before, places)).collect())
        });
        let [one, few, more, many] = times;
        println!("{what:<32} {one:>8.1} {few:>8.1} {more:>8.1} {many:>8.1}");
    }
    Ok(())
}

/// Shared memory mapped for writing and for execution, with a function at the start of every second line.
struct Lines {
    writable: memmap2::MmapRaw,
    executable: memmap2::MmapRaw,
}

/// A line of code: adds one to the word at the third argument and returns; nops and zeros fill the rest.
const CODE: [u64; LINE / 8] =
    [u64::from_le_bytes([0x48, 0xff, 0x02, 0xc3, 0x90, 0x90, 0x90, 0x90]), 0, 0, 0, 0, 0, 0, 0];

impl Lines {
    fn new() -> Result<Lines, Failure> {
        icache::supported()?;
        let len = PLACES[PLACES.len() - 1] * 2 * LINE;
        let file = std::fs::File::from(rustix::fs::memfd_create("lines", rustix::fs::MemfdFlags::empty())?);
        file.set_len(len as u64)?;
        let options = {
            let mut options = MmapOptions::new();
            options.len(len).populate();
            options
        };
        let writable = options.map_raw(&file)?;
        // SAFETY: `file` is private here and keeps its length; its mapping is only accessed through pointers.
        let executable = unsafe { options.map_exec(&file)? }.into();
        let lines = Lines { writable, executable };
        (0..PLACES[PLACES.len() - 1]).for_each(|place| lines.write(place));
        Ok(lines)
    }

    fn line(&self, place: usize) -> *mut [u64; LINE / 8] {
        assert!(place < PLACES[PLACES.len() - 1]);
        // SAFETY: the assertion keeps the address inside the mapping, which has two lines for each place.
        unsafe { self.writable.as_mut_ptr().add(place * 2 * LINE).cast() }
    }

    fn write(&self, place: usize) {
        // SAFETY: `line` returns an aligned pointer into the mapping, and this thread is the only one.
        unsafe { self.line(place).write_volatile(black_box(CODE)) };
    }

    /// Nanoseconds of a call.
    fn turn(&self, before: Before, places: usize) -> f64 {
        let mut count = 0_u64;
        let start = Instant::now();
        for turn in 0..TURNS {
            let place = turn % places;
            let word = self.line(place).cast::<u64>();
            // SAFETY: the fifth word lies inside the line of `line`; it is never executed.
            unsafe {
                match before {
                    Before::Nothing => {}
                    Before::ReadWord => _ = black_box(word.add(4).read_volatile()),
                    Before::StoreWord => word.add(4).write_volatile(turn as u64),
                    Before::Rewrite | Before::RewriteAndSerialise => self.write(place),
                }
            }
            // SAFETY: as in `line`; the executable mapping has the same length.
            let address = unsafe { self.executable.as_ptr().add(place * 2 * LINE) };
            if before == Before::RewriteAndSerialise {
                icache::sync_foreign(address.addr() as u64, LINE);
            }
            // SAFETY: the line holds `CODE`, which adds one to the word at its third argument, and no more.
            unsafe {
                let main: unsafe extern "C" fn(*mut c_void, usize, *mut u64) = std::mem::transmute(address);
                main(std::ptr::null_mut(), 0, &raw mut count);
            }
        }
        let time = start.elapsed();
        assert_eq!(count, TURNS as u64, "every call ran");
        time.as_nanos() as f64 / TURNS as f64
    }
}
