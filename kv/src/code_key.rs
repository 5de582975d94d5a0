//! Names of the keys that hold loaded code, and slots of a cluster.

use std::sync::OnceLock;

/// The name of the key, and the beginning of the names in a cluster.
pub(crate) const KEY: &[u8] = b"farjump:code";
/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The name of the code's key in this slot: `farjump:code:{TAG}`. The slot of such a name is that of its tag.
pub(crate) fn key_in(slot: u16) -> Vec<u8> {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tag = TAGS.get_or_init(tags)[usize::from(slot % SLOTS)];
    [KEY, format!(":{{{tag}}}").as_bytes()].concat()
}

/// Returns, for each slot, the least number whose digits have that slot. All nodes and versions have the same numbers.
fn tags() -> Vec<u32> {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        let tag = &mut tags[usize::from(slot_of(number.to_string().as_bytes()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
}

/// Returns the slot of a key: that of the part between its first braces, if that part is not empty.
pub(crate) fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let behind = &key[open + 1..];
        let len = behind.iter().position(|&byte| byte == b'}').filter(|&len| len != 0)?;
        Some(&behind[..len])
    });
    slot_of(tag.unwrap_or(key))
}

/// The slot of a tag.
fn slot_of(tag: &[u8]) -> u16 {
    crc16(tag) % SLOTS
}

/// CRC-16/XMODEM, which clusters use.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers_specification() {
        for (key, slot) in [
            ("foo", 12_182),
            ("b", 3300),
            ("123456789", 12_739),
            ("{b}foo", 3300),
            ("x{b}{foo}", 3300),
            ("{}b", slot_of(b"{}b")),
            ("{b", slot_of(b"{b")),
            ("a{{b}}", slot_of(b"{b")),
        ] {
            assert_eq!(slot_of_key(key.as_bytes()), slot, "{key}");
        }
        for slot in [0, 1, 3300, SLOTS - 1] {
            assert_eq!(slot_of_key(&key_in(slot)), slot);
        }
    }
}
