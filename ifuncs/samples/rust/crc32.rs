//! crc32: the CRC-32 of the target's data, as in IEEE 802.3 and zlib. The payload is not read. The reply is the same as
//! that of `samples/c/crc32.c`: 32 bits. Eight bytes a step, from tables that are computed on each call.

#![no_std]

use farjump_ifunc::{Data, ifunc, reply_value};

ifunc! {
    name: crc32,
    main: crc32,
    target: &Data,
}

/// Reflected: the lowest bit is the highest power.
const POLYNOMIAL: u32 = 0xedb8_8320;

fn crc32(_payload: &[u8], data: &Data) {
    let tables = tables();
    let [t0, .., t7] = &tables;
    let (words, rest) = data.bytes().as_chunks::<8>();
    let mut crc = !0_u32;
    for &word in words {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(word) ^ u64::from(crc)).to_le_bytes().map(usize::from);
        crc = t7[a]
            ^ tables[6][b]
            ^ tables[5][c]
            ^ tables[4][d]
            ^ tables[3][e]
            ^ tables[2][f]
            ^ tables[1][g]
            ^ t0[h];
    }
    for &byte in rest {
        crc = crc >> 8 ^ t0[usize::from(crc as u8 ^ byte)];
    }
    let _ = reply_value(&!crc);
}

/// First the remainder of each byte, then of each byte with one to seven zero bytes behind it.
fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    for value in 0..=255_u8 {
        let mut rest = u32::from(value);
        for _ in 0..8 {
            rest = rest >> 1 ^ if rest & 1 == 1 { POLYNOMIAL } else { 0 };
        }
        tables[0][usize::from(value)] = rest;
    }
    for zeroes in 1..8 {
        for value in 0..256 {
            let rest = tables[zeroes - 1][value];
            tables[zeroes][value] = rest >> 8 ^ tables[0][rest as usize & 255];
        }
    }
    tables
}
