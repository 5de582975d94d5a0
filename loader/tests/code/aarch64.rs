//! aarch64. The code computes no addresses of pages, so it runs at each offset in its page.

use farjump_core::image::SPAN_DISTANCE;

use super::bytes;

const RET: u32 = 0xd65f_03c0;

/// `ret`
pub(crate) const RETURN: [u8; 4] = RET.to_le_bytes();
/// `ldr x3, [x2]; add x3, x3, #1; str x3, [x2]; ret`
pub(crate) const INCREMENT: [u8; 16] = bytes([0xf940_0043, 0x9100_0463, 0xf900_0043, RET]);
/// `ldr x3, [x2]; sub x3, x3, #1; str x3, [x2]; ret`
pub(crate) const DECREMENT: [u8; 16] = bytes([0xf940_0043, 0xd100_0463, 0xf900_0043, RET]);
/// `again: ldr x3, [x2, #8]; add x3, x3, #1; str x3, [x2, #8]; ldr x4, [x2]; cbz x4, again; ret`
pub(crate) const COUNT_UNTIL_STOPPED: [u8; 24] =
    bytes([0xf940_0443, 0x9100_0463, 0xf900_0443, 0xf940_0044, 0xb4ff_ff84, RET]);
/// `here: adr x5, here; str x5, [x5]; ret`
pub(crate) const WRITE_ITSELF: [u8; 12] = bytes([0x1000_0005, 0xf900_00a5, RET]);

/// A byte of `udf #0`.
pub(crate) const TRAP: u8 = 0;
pub(crate) const TRAP_SIGNAL: i32 = libc::SIGILL;

/// `adr x5, start; movz x6, #(SPAN_DISTANCE >> 16), lsl #16; add x5, x5, x6`, at the start: the address of span 2.
const ADDRESS_OF_SPAN2: [u32; 3] =
    [0x1000_0005, 0xd2a0_0006 | ((SPAN_DISTANCE >> 16) as u32) << 5, 0x8b06_00a5];

pub(crate) fn reporter(got_words: usize, data_words: usize) -> (Vec<u8>, u32) {
    let got = (4 * (ADDRESS_OF_SPAN2.len() + 2 * (got_words + data_words) + 1)).next_multiple_of(8);
    let mut code = ADDRESS_OF_SPAN2.to_vec();
    for word in 0..got_words + data_words {
        code.push(match word.checked_sub(got_words) {
            // ldr x3, got+8*word
            None => 0x5800_0003 | ((got + 8 * word - 4 * code.len()) as u32 / 4) << 5,
            // ldr x3, [x5, #8*word]
            Some(word) => 0xf940_00a3 | (word as u32) << 10,
        });
        // str x3, [x2, #8*word]
        code.push(0xf900_0043 | (word as u32) << 10);
    }
    code.push(RET);
    let mut code: Vec<u8> = code.into_iter().flat_map(u32::to_le_bytes).collect();
    code.resize(got + 8 * got_words, 0);
    (code, got as u32)
}

pub(crate) fn static_counter() -> Vec<u8> {
    // ldr x3, [x5]; add x3, x3, #1; str x3, [x5]; str x3, [x2]; ret
    let rest = [0xf940_00a3, 0x9100_0463, 0xf900_00a3, 0xf900_0043, RET];
    ADDRESS_OF_SPAN2.into_iter().chain(rest).flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn static_reader(offset: u16) -> Vec<u8> {
    // movz x7, #offset; ldr x3, [x5, x7]; str x3, [x2]; ret
    let rest = [0xd280_0007 | u32::from(offset) << 5, 0xf867_68a3, 0xf900_0043, RET];
    ADDRESS_OF_SPAN2.into_iter().chain(rest).flat_map(u32::to_le_bytes).collect()
}
