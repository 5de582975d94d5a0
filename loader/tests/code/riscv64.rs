//! riscv64, without compressed instructions.

use farjump_core::image::SPAN_DISTANCE;

use super::bytes;

const RET: u32 = 0x0000_8067;

/// `ret`
pub(crate) const RETURN: [u8; 4] = RET.to_le_bytes();
/// `ld a3, 0(a2); addi a3, a3, 1; sd a3, 0(a2); ret`
pub(crate) const INCREMENT: [u8; 16] = bytes([0x0006_3683, 0x0016_8693, 0x00d6_3023, RET]);
/// `ld a3, 0(a2); addi a3, a3, -1; sd a3, 0(a2); ret`
pub(crate) const DECREMENT: [u8; 16] = bytes([0x0006_3683, 0xfff6_8693, 0x00d6_3023, RET]);
/// `again: ld a3, 8(a2); addi a3, a3, 1; sd a3, 8(a2); ld a4, 0(a2); beqz a4, again; ret`
pub(crate) const COUNT_UNTIL_STOPPED: [u8; 24] =
    bytes([0x0086_3683, 0x0016_8693, 0x00d6_3423, 0x0006_3703, 0xfe07_08e3, RET]);
/// `here: auipc t0, 0; sd t0, 0(t0); ret`
pub(crate) const WRITE_ITSELF: [u8; 12] = bytes([0x0000_0297, 0x0052_b023, RET]);

/// A byte of the illegal instruction.
pub(crate) const TRAP: u8 = 0;
pub(crate) const TRAP_SIGNAL: i32 = libc::SIGILL;

/// `auipc t0, SPAN_DISTANCE >> 12`, at the start: the address of span 2.
const ADDRESS_OF_SPAN2: u32 = 0x0000_0297 | SPAN_DISTANCE as u32;

pub(crate) fn reporter(got_words: usize, data_words: usize) -> (Vec<u8>, u32) {
    let got = (4 * (2 + 2 * (got_words + data_words) + 1)).next_multiple_of(8);
    // `auipc t1, 0`: the address of this instruction, the second one.
    let mut code = vec![ADDRESS_OF_SPAN2, 0x0000_0317];
    for word in 0..got_words + data_words {
        code.push(match word.checked_sub(got_words) {
            // ld a3, got+8*word-4(t1)
            None => 0x0003_3683 | ((got + 8 * word - 4) as u32) << 20,
            // ld a3, 8*word(t0)
            Some(word) => 0x0002_b683 | (8 * word as u32) << 20,
        });
        // sd a3, 8*word(a2): the offset's lower five bits and its upper seven lie apart.
        let offset = 8 * word as u32;
        code.push(0x00d6_3023 | (offset & 31) << 7 | (offset >> 5) << 25);
    }
    code.push(RET);
    let mut code: Vec<u8> = code.into_iter().flat_map(u32::to_le_bytes).collect();
    code.resize(got + 8 * got_words, 0);
    (code, got as u32)
}

pub(crate) fn static_counter() -> Vec<u8> {
    // ld a3, 0(t0); addi a3, a3, 1; sd a3, 0(t0); sd a3, 0(a2); ret
    let code = [ADDRESS_OF_SPAN2, 0x0002_b683, 0x0016_8693, 0x00d2_b023, 0x00d6_3023, RET];
    code.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn static_reader(offset: u16) -> Vec<u8> {
    // lui t2, upper; addi t2, t2, lower, which is signed; add t2, t2, t0; ld a3, 0(t2); sd a3, 0(a2); ret
    let offset = u32::from(offset);
    let upper = (offset + 0x800) & !0xfff;
    let lower = offset.wrapping_sub(upper) & 0xfff;
    let code = [
        ADDRESS_OF_SPAN2,
        0x0000_03b7 | upper,
        0x0003_8393 | lower << 20,
        0x0053_83b3,
        0x0003_b683,
        0x00d6_3023,
        RET,
    ];
    code.into_iter().flat_map(u32::to_le_bytes).collect()
}
