//! crc32: the CRC-32 of the target's data, as in IEEE 802.3 and zlib. The payload is not read. The reply is
//! that of `samples/c/crc32.c`: 32 bits. It takes eight bytes a step, by tables that each call computes.

#![no_std]

use farjump_ifunc::{Data, Payload, ifunc};

/// Reflected: the lowest bit is the highest power.
const POLYNOMIAL: u32 = 0xedb8_8320;

#[ifunc]
fn crc32(_payload: &Payload, data: &Data) -> u32 {
    let tables = tables();
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &tables;
    let mut crc = !0_u32;
    for word in data.chunks::<8>() {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(word) ^ u64::from(crc)).to_le_bytes();
        crc = t7[usize::from(a)]
            ^ t6[usize::from(b)]
            ^ t5[usize::from(c)]
            ^ t4[usize::from(d)]
            ^ t3[usize::from(e)]
            ^ t2[usize::from(f)]
            ^ t1[usize::from(g)]
            ^ t0[usize::from(h)];
    }
    for byte in data.rest::<8>() {
        crc = crc >> 8 ^ t0[usize::from(crc as u8 ^ byte)];
    }
    !crc
}

/// Returns the remainders of each byte, then of each byte and one to seven zero bytes. A byte cannot be out
/// of range as an index, so nothing here can panic.
fn tables() -> [[u32; 256]; 8] {
    let mut table = [0; 256];
    for (value, rest) in (0_u32..).zip(&mut table) {
        *rest = value;
        for _ in 0..8 {
            *rest = *rest >> 1 ^ if *rest & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    let of_byte = table;
    let mut tables = [[0; 256]; 8];
    for slot in &mut tables {
        *slot = table;
        for rest in &mut table {
            *rest = *rest >> 8 ^ of_byte[usize::from(*rest as u8)];
        }
    }
    tables
}
