//! Values in the bits of words and instructions.

use super::machines::Field;

/// The reason why a value does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Misfit {
    /// The value, which has more bits than the field, or is no multiple of the field's unit.
    Value(i64),
    /// The section ends before the field does.
    End,
}

/// Writes `target`, an address with the addend, to the front of `at`, which lies at `place`. `got` is the address of the
/// GOT's start.
///
/// # Errors
/// See [`Misfit`]. The bytes are then unchanged.
pub(super) fn put(field: Field, at: &mut [u8], place: u64, target: u64, got: u64) -> Result<(), Misfit> {
    let distance = target.wrapping_sub(place) as i64;
    match field {
        Field::Nothing => Ok(()),
        Field::Word(len) | Field::Put(len) => word(at, len, |_| target),
        Field::Distance(len) => {
            fits(distance, 8 * len as u32, 1)?;
            word(at, len, |_| distance as u64)
        }
        Field::FromGot => word(at, 8, |_| target.wrapping_sub(got)),
        Field::Adr => adr(at, distance),
        Field::Page => adr(at, ((target & !0xfff).wrapping_sub(place & !0xfff) as i64) >> 12),
        Field::InPage(unit) => {
            let low = (target & 0xfff) as i64;
            fits(low, 13, 1 << unit)?;
            change(at, 0xfff << 10, ((low as u32) >> unit) << 10)
        }
        Field::Words { bits, from } => {
            fits(distance, bits + 2, 4)?;
            let mask = ((1_u32 << bits) - 1) << from;
            change(at, mask, ((distance >> 2) as u32) << from)
        }
        Field::High => change(at, 0xffff_f000, high(distance)?),
        Field::LowLoad => change(at, 0xfff0_0000, (distance as u32) << 20),
        Field::LowStore => {
            let low = distance as u32;
            change(at, 0xfe00_0f80, (low >> 5 & 0x7f) << 25 | (low & 0x1f) << 7)
        }
        Field::Pair => {
            let upper = high(distance)?;
            let (first, second) = at.split_at_mut_checked(4).ok_or(Misfit::End)?;
            change(second, 0xfff0_0000, (distance as u32) << 20)?;
            change(first, 0xffff_f000, upper)
        }
        Field::Branch => {
            fits(distance, 13, 2)?;
            let of = |from: u32, bits: u32, to: u32| part(distance, from, bits, to);
            change(at, 0xfe00_0f80, of(12, 1, 31) | of(5, 6, 25) | of(1, 4, 8) | of(11, 1, 7))
        }
        Field::Jump => {
            fits(distance, 21, 2)?;
            let of = |from: u32, bits: u32, to: u32| part(distance, from, bits, to);
            change(at, 0xffff_f000, of(20, 1, 31) | of(1, 10, 21) | of(11, 1, 20) | of(12, 8, 12))
        }
        Field::ShortBranch => {
            fits(distance, 9, 2)?;
            let of = |from: u32, bits: u32, to: u32| part(distance, from, bits, to);
            let bits = of(8, 1, 12) | of(3, 2, 10) | of(6, 2, 5) | of(1, 2, 3) | of(5, 1, 2);
            word(at, 2, |old| old & !0x1c7c | u64::from(bits))
        }
        Field::ShortJump => {
            fits(distance, 12, 2)?;
            let of = |from: u32, bits: u32, to: u32| part(distance, from, bits, to);
            let bits = of(11, 1, 12)
                | of(4, 1, 11)
                | of(8, 2, 9)
                | of(10, 1, 8)
                | of(6, 1, 7)
                | of(7, 1, 6)
                | of(1, 3, 3)
                | of(5, 1, 2);
            word(at, 2, |old| old & !0x1ffc | u64::from(bits))
        }
        Field::Add(len) => word(at, len, |old| old.wrapping_add(target)),
        Field::Subtract(len) => word(at, len, |old| old.wrapping_sub(target)),
        Field::PutSix => word(at, 1, |old| old & 0xc0 | target & 0x3f),
        Field::SubtractSix => word(at, 1, |old| old & 0xc0 | old.wrapping_sub(target) & 0x3f),
        Field::PutLeb => leb(at, |_| target),
        Field::SubtractLeb => leb(at, |old| old.wrapping_sub(target)),
    }
}

/// Replaces a little-endian word.
fn word(at: &mut [u8], len: usize, new: impl FnOnce(u64) -> u64) -> Result<(), Misfit> {
    let at = at.get_mut(..len).ok_or(Misfit::End)?;
    let mut bytes = [0; 8];
    bytes[..len].copy_from_slice(at);
    bytes = new(u64::from_le_bytes(bytes)).to_le_bytes();
    at.copy_from_slice(&bytes[..len]);
    Ok(())
}

/// Replaces the bits of an instruction of four bytes that are set in `mask`.
fn change(at: &mut [u8], mask: u32, bits: u32) -> Result<(), Misfit> {
    word(at, 4, |old| old & !u64::from(mask) | u64::from(bits & mask))
}

/// Replaces a number in LEB128 by the lower bits of a new one, in as many bytes.
fn leb(at: &mut [u8], new: impl FnOnce(u64) -> u64) -> Result<(), Misfit> {
    let len = 1 + at.iter().take(9).position(|byte| byte & 0x80 == 0).ok_or(Misfit::End)?;
    let at = &mut at[..len];
    let old = at.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    let mut number = new(old);
    for (index, byte) in at.iter_mut().enumerate() {
        *byte = (number & 0x7f) as u8 | if index + 1 < len { 0x80 } else { 0 };
        number >>= 7;
    }
    Ok(())
}

/// Checks that a number has at most so many bits, with its sign, and is a multiple.
fn fits(number: i64, bits: u32, unit: i64) -> Result<(), Misfit> {
    let most = if bits >= 64 { i64::MAX } else { (1 << (bits - 1)) - 1 };
    match (-most - 1..=most).contains(&number) && number % unit == 0 {
        true => Ok(()),
        false => Err(Misfit::Value(number)),
    }
}

/// Moves `bits` bits of a number from bit `from` to bit `to`.
fn part(number: i64, from: u32, bits: u32, to: u32) -> u32 {
    ((number >> from) as u32 & ((1 << bits) - 1)) << to
}

fn adr(at: &mut [u8], value: i64) -> Result<(), Misfit> {
    fits(value, 21, 1)?;
    change(at, 0x60ff_ffe0, part(value, 0, 2, 29) | part(value, 2, 19, 5))
}

/// The upper half of a distance: the lower one, of 12 bits, has a sign.
fn high(distance: i64) -> Result<u32, Misfit> {
    let upper = distance.wrapping_add(0x800) >> 12;
    fits(upper, 20, 1).map_err(|_| Misfit::Value(distance))?;
    Ok((upper as u32) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS_26: Field = Field::Words { bits: 26, from: 0 };
    const WORDS_19: Field = Field::Words { bits: 19, from: 5 };
    const WORDS_14: Field = Field::Words { bits: 14, from: 5 };

    /// Instructions as GNU as makes them: field, distance, bytes of the instruction and its value.
    const ASSEMBLED: [(Field, i64, usize, u32); 20] = [
        (Field::Branch, 16, 4, 0x00b5_0863),
        (Field::Branch, -4, 4, 0xfeb5_1ee3),
        (Field::Branch, 4094, 4, 0x7ed6_6fe3),
        (Field::Jump, 2048, 4, 0x0010_00ef),
        (Field::Jump, -4, 4, 0xffdf_f0ef),
        (Field::Jump, 0xabcde, 4, 0x4dfa_b06f),
        (Field::High, 0x1234_5000, 4, 0x1234_5517),
        (Field::ShortJump, 8, 2, 0xa021),
        (Field::ShortJump, -2, 2, 0xbffd),
        (Field::ShortJump, 0x6ae, 2, 0xa57d),
        (Field::ShortJump, -0x800, 2, 0xb001),
        (Field::ShortBranch, 8, 2, 0xc501),
        (Field::ShortBranch, -6, 2, 0xfded),
        (Field::ShortBranch, 0xde, 2, 0xce79),
        (WORDS_26, 8, 4, 0x1400_0002),
        (WORDS_26, -4, 4, 0x97ff_ffff),
        (WORDS_19, 1_048_572, 4, 0xb47f_ffe1),
        (WORDS_14, -32_768, 4, 0x372c_0002),
        (Field::Adr, 0x12345, 4, 0x3009_1a23),
        (Field::Adr, -1, 4, 0x70ff_ffe3),
    ];

    #[test]
    fn distances_stand_where_an_assembler_puts_them() {
        const PLACE: u64 = 0x1000_0000;
        for (field, distance, len, expected) in ASSEMBLED {
            let mut bytes = expected.to_le_bytes();
            for distance in [0, distance] {
                put(field, &mut bytes[..len], PLACE, PLACE.wrapping_add_signed(distance), 0).unwrap();
            }
            assert_eq!(u32::from_le_bytes(bytes), expected, "{field:?} {distance}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_refused_and_nothing_is_written() {
        let refused = [
            (Field::Distance(4), 1_i64 << 31),
            (Field::Distance(1), 128),
            (Field::Branch, 4096),
            (Field::Branch, 1),
            (Field::Jump, 1 << 20),
            (Field::ShortJump, 2048),
            (Field::ShortBranch, -258),
            (Field::High, (1 << 31) - 0x800),
            (Field::Pair, -(1 << 31) - 0x801),
            (WORDS_26, 1 << 27),
            (WORDS_26, 2),
            (WORDS_19, 1 << 20),
            (WORDS_14, -(1 << 15) - 4),
            (Field::Adr, 1 << 20),
            (Field::Page, 1 << 32),
            (Field::InPage(3), 4),
        ];
        for (field, distance) in refused {
            let mut bytes = [0x5a; 8];
            let place = 0x10_0000_0000;
            let misfit = put(field, &mut bytes, place, place.wrapping_add_signed(distance), 0);
            assert!(matches!(misfit, Err(Misfit::Value(_))), "{field:?} {distance}: {misfit:?}");
            assert_eq!(bytes, [0x5a; 8], "{field:?} {distance}");
            assert_eq!(put(field, &mut [], place, place, 0), Err(Misfit::End), "{field:?}");
        }
    }

    #[test]
    fn both_halves_of_a_distance_add_up() {
        for distance in [0, 1, 0x7ff, 0x800, -0x800, -0x801, 0x1234_5678, -0x1234_5678, 0x7fff_f7ff] {
            // auipc, jalr
            let mut bytes = 0x0000_80e7_0000_0097_u64.to_le_bytes();
            put(Field::Pair, &mut bytes, 0, distance as u64, 0).unwrap();
            let (upper, lower) = (u64::from_le_bytes(bytes) as u32, (u64::from_le_bytes(bytes) >> 32) as u32);
            let sum = i64::from((upper & 0xffff_f000) as i32) + i64::from(lower as i32 >> 20);
            assert_eq!(sum, distance, "{upper:#x} {lower:#x}");
        }
    }

    #[test]
    fn numbers_of_any_length_keep_theirs() {
        let mut bytes = [0x80, 0x80, 0x00, 0xff];
        put(Field::PutLeb, &mut bytes, 0, 0x1_0000_1234, 0).unwrap();
        put(Field::SubtractLeb, &mut bytes, 0, 0x1_0000_1000, 0).unwrap();
        assert_eq!(bytes, [0xb4, 0x84, 0x00, 0xff]);
        assert_eq!(put(Field::PutLeb, &mut [0x80; 16], 0, 1, 0), Err(Misfit::End));
    }
}
