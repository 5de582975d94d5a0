//! x86-64.

use farjump_core::image::SPAN_DISTANCE;

pub(crate) const RETURN: [u8; 1] = [0xc3];
/// `incq (%rdx); ret`
pub(crate) const INCREMENT: [u8; 4] = [0x48, 0xff, 0x02, 0xc3];
/// `decq (%rdx); ret`
pub(crate) const DECREMENT: [u8; 4] = [0x48, 0xff, 0x0a, 0xc3];
/// `again: incq 8(%rdx); cmpq $0, (%rdx); je again; ret`
pub(crate) const COUNT_UNTIL_STOPPED: [u8; 11] =
    [0x48, 0xff, 0x42, 0x08, 0x48, 0x83, 0x3a, 0x00, 0x74, 0xf6, 0xc3];
/// `incq here(%rip)`, which writes its own first bytes; `ret`
pub(crate) const WRITE_ITSELF: [u8; 8] = [0x48, 0xff, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3];

/// `int3`
pub(crate) const TRAP: u8 = 0xcc;
pub(crate) const TRAP_SIGNAL: i32 = libc::SIGTRAP;

fn load(code: &mut Vec<u8>, from: i64) {
    // movq from(%rip), %rax
    code.extend([0x48, 0x8b, 0x05]);
    code.extend(i32::try_from(from - (code.len() as i64 + 4)).unwrap().to_le_bytes());
}

pub(crate) fn reporter(got_words: usize, data_words: usize) -> (Vec<u8>, u32) {
    let got = (11 * (got_words + data_words) + 1).next_multiple_of(8);
    let mut code = Vec::new();
    for word in 0..got_words + data_words {
        let from = match word.checked_sub(got_words) {
            None => got as i64 + 8 * word as i64,
            Some(word) => SPAN_DISTANCE as i64 + 8 * word as i64,
        };
        load(&mut code, from);
        // movq %rax, 8*word(%rdx)
        code.extend([0x48, 0x89, 0x42, 8 * word as u8]);
    }
    code.push(0xc3);
    code.resize(got + 8 * got_words, 0);
    (code, got as u32)
}

pub(crate) fn static_counter() -> Vec<u8> {
    // incq static(%rip)
    let mut code = vec![0x48, 0xff, 0x05];
    code.extend((SPAN_DISTANCE as i32 - 7).to_le_bytes());
    load(&mut code, SPAN_DISTANCE as i64);
    // movq %rax, (%rdx); ret
    code.extend([0x48, 0x89, 0x02, 0xc3]);
    code
}

pub(crate) fn static_reader(offset: u16) -> Vec<u8> {
    let mut code = Vec::new();
    load(&mut code, SPAN_DISTANCE as i64 + i64::from(offset));
    // movq %rax, (%rdx); ret
    code.extend([0x48, 0x89, 0x02, 0xc3]);
    code
}
