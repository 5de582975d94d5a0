//! Messages of protobuf, as far as the sample `protobuf_sum` reads them. The measurements also use them.

/// A varint.
pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
