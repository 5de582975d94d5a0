//! Changes each number of a structure, and replies the structure: on each machine the same bytes stand for the same
//! numbers.

#![no_std]

use farjump_ifunc::{Plain, ifunc};

#[derive(Plain)]
#[repr(C)]
struct Measures {
    wide: i128,
    long: u64,
    double: f64,
    float: f32,
    int: i32,
    short: u16,
    bytes: [i8; 2],
    rest: [u32; 5],
}

#[ifunc]
fn measures(given: &Measures) -> Measures {
    let Measures { wide, long, double, float, int, short, bytes, rest } = *given;
    Measures {
        wide: wide.wrapping_neg(),
        long: long.rotate_left(8),
        double: double / 2.0,
        float: float * 3.0,
        int: int.wrapping_sub(1),
        short: short.swap_bytes(),
        bytes: bytes.map(i8::wrapping_neg),
        rest: rest.map(|number| number.wrapping_add(1)),
    }
}
