//! Handles: small values that name an object at its owner. A program may send or store them in any way.
//!
//! Their encoding, version 1, all numbers little-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 3 | `FJH` |
//! | 3 | 1 | version: 1 |
//! | 4 | 8 | epoch of the store: another number each time that one is made |
//! | 12 | 8 | number of the object, never used again within an epoch |
//! | 20 | 8 | length of the object in bytes; 0 if it was reserved before it had contents |
//! | 28 | 16 | access key |
//! | 44 | 1 | length of the type's name, then the name, UTF-8 |
//! | | 1 | number of the owner's addresses, at most 8; for each its length in 2 bytes, and UTF-8 of at most 1024 bytes |

use std::fmt;
use std::sync::Arc;

/// The first bytes of every handle.
const MAGIC: [u8; 3] = *b"FJH";
/// The version that this library writes, and the only one that it reads.
const VERSION: u8 = 1;
/// Most bytes of the name of a type.
pub const MAX_TYPE_NAME: usize = u8::MAX as usize;
/// Most addresses of an owner.
pub const MAX_ADDRESSES: usize = 8;
/// Most bytes of an address.
pub const MAX_ADDRESS: usize = 1024;
/// Bytes before the name of the type.
const HEAD: usize = 44;
/// Most bytes of an encoded handle.
pub const MAX_HANDLE: usize = HEAD + 1 + MAX_TYPE_NAME + 1 + MAX_ADDRESSES * (2 + MAX_ADDRESS);

/// Names an object: its owner's addresses and epoch, its number, and the key to it.
///
/// A handle is a value: clone it, compare it, hash it, or encode it ([`Handle::to_bytes`]) to send or store it. It
/// holds nothing, and nothing happens when it is dropped. A process that has a handle, and that the owner lets connect,
/// can read the object and evict it: keep a handle like a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    pub(crate) len: u64,
    pub(crate) key: Key,
    pub(crate) type_name: Arc<str>,
    pub(crate) addresses: Arc<[String]>,
}

/// The key to one object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) [u8; 16]);

impl Key {
    /// Returns whether this is `other`, in a time that does not depend on the bytes.
    pub(crate) fn is(&self, other: &Key) -> bool {
        u128::from_le_bytes(self.0) ^ u128::from_le_bytes(other.0) == 0
    }
}

/// The reason why bytes are no handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleFault {
    /// The bytes do not begin with `FJH`.
    #[error("they do not begin with FJH")]
    Magic,
    /// The bytes are of a version that this library does not read.
    #[error(
        "they are of version {found}, and this library reads version {VERSION}: update the older of the two programs"
    )]
    Version {
        /// The version.
        found: u8,
    },
    /// The bytes end too early.
    #[error("they are cut off after {len} bytes")]
    Cut {
        /// Their number.
        len: usize,
    },
    /// More bytes follow behind the end.
    #[error("{excess} more bytes follow the end")]
    Excess {
        /// Number of bytes.
        excess: usize,
    },
    /// A text is not UTF-8.
    #[error("the {0} is no UTF-8")]
    Text(&'static str),
    /// The handle has too many addresses.
    #[error("they have {found} addresses, and {MAX_ADDRESSES} are allowed")]
    Addresses {
        /// Number of addresses.
        found: u8,
    },
    /// An address is too long.
    #[error("an address has {len} bytes, and {MAX_ADDRESS} are allowed")]
    Address {
        /// Its length in bytes.
        len: usize,
    },
}

impl Handle {
    /// Returns the handle's encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + 64);
        bytes.extend(MAGIC);
        bytes.push(VERSION);
        for number in [self.epoch, self.number, self.len] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.key.0);
        bytes.push(self.type_name.len() as u8);
        bytes.extend(self.type_name.as_bytes());
        bytes.push(self.addresses.len() as u8);
        for address in &*self.addresses {
            bytes.extend((address.len() as u16).to_le_bytes());
            bytes.extend(address.as_bytes());
        }
        bytes
    }

    /// Decodes a handle.
    ///
    /// # Errors
    /// The first fault. Only its owner knows whether the object exists.
    pub fn from_bytes(bytes: &[u8]) -> Result<Handle, HandleFault> {
        let all = bytes.len();
        let mut rest = bytes;
        let mut take = |len: usize| -> Result<&[u8], HandleFault> {
            let (taken, behind) = rest.split_at_checked(len).ok_or(HandleFault::Cut { len: all })?;
            rest = behind;
            Ok(taken)
        };
        if take(MAGIC.len())? != MAGIC {
            return Err(HandleFault::Magic);
        }
        let version = take(1)?[0];
        if version != VERSION {
            return Err(HandleFault::Version { found: version });
        }
        let mut number = || -> Result<u64, HandleFault> {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(take(8)?);
            Ok(u64::from_le_bytes(bytes))
        };
        let (epoch, object, len) = (number()?, number()?, number()?);
        let mut key = [0; 16];
        key.copy_from_slice(take(16)?);
        let name_len = take(1)?[0].into();
        let type_name =
            std::str::from_utf8(take(name_len)?).map_err(|_| HandleFault::Text("name of the type"))?;
        let found = take(1)?[0];
        if usize::from(found) > MAX_ADDRESSES {
            return Err(HandleFault::Addresses { found });
        }
        let mut addresses = Vec::with_capacity(found.into());
        for _ in 0..found {
            let mut len = [0; 2];
            len.copy_from_slice(take(2)?);
            let len = usize::from(u16::from_le_bytes(len));
            if len > MAX_ADDRESS {
                return Err(HandleFault::Address { len });
            }
            let address = std::str::from_utf8(take(len)?).map_err(|_| HandleFault::Text("address"))?;
            addresses.push(address.to_owned());
        }
        if !rest.is_empty() {
            return Err(HandleFault::Excess { excess: rest.len() });
        }
        Ok(Handle {
            epoch,
            number: object,
            len,
            key: Key(key),
            type_name: type_name.into(),
            addresses: addresses.into(),
        })
    }

    /// Length of the object in bytes when the handle was made. 0 for an object that was only reserved.
    #[allow(clippy::len_without_is_empty, reason = "a reserved object has no length yet")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The name of the object's type, as its maker gave it. May be empty.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The addresses of the owner; none if the store was not listening anywhere when the handle was made.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The epoch of the store that has the object.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the object.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Without the key, so that logs do not give access.
impl fmt::Debug for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Handle")
            .field("number", &self.number)
            .field("epoch", &format_args!("{:#x}", self.epoch))
            .field("len", &self.len)
            .field("type_name", &self.type_name)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> Handle {
        Handle {
            epoch: 0x1122_3344_5566_7788,
            number: 7,
            len: 4096,
            key: Key([0xab; 16]),
            type_name: "f32".into(),
            addresses: ["unix:/run/a.sock".to_owned(), "tcp:10.0.0.1:7".to_owned()].into(),
        }
    }

    /// A handle stored by a program of an earlier release. It must never change.
    const STORED: &str = "464a480188776655443322110700000000000000001000\
                          0000000000abababababababababababababababab0366\
                          3332021000756e69783a2f72756e2f612e736f636b0e00\
                          7463703a31302e302e302e313a37";

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn a_stored_handle_reads_back_and_is_written_alike() {
        let stored = unhex(STORED);
        assert_eq!(Handle::from_bytes(&stored), Ok(handle()));
        assert_eq!(handle().to_bytes(), stored);
    }

    #[test]
    fn a_handle_cut_at_any_length_or_too_long_is_refused() {
        let bytes = handle().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Handle::from_bytes(&bytes[..len]), Err(HandleFault::Cut { len }));
        }
        assert_eq!(Handle::from_bytes(&[bytes, vec![0]].concat()), Err(HandleFault::Excess { excess: 1 }));
    }

    #[test]
    fn other_bytes_are_refused_with_their_fault() {
        let with = |at: usize, byte: u8| {
            let mut bytes = handle().to_bytes();
            bytes[at] = byte;
            Handle::from_bytes(&bytes)
        };
        assert_eq!(with(0, b'X'), Err(HandleFault::Magic));
        assert_eq!(with(3, 2), Err(HandleFault::Version { found: 2 }));
        assert_eq!(with(45, 0xff), Err(HandleFault::Text("name of the type")));
        assert_eq!(with(48, 9), Err(HandleFault::Addresses { found: 9 }));
        assert_eq!(with(50, 0xff), Err(HandleFault::Address { len: 0xff10 }));
        assert_eq!(with(51, 0xff), Err(HandleFault::Text("address")));
    }

    #[test]
    fn debug_shows_no_key() {
        let shown = format!("{:?}", handle());
        assert!(shown.contains("number: 7") && !shown.contains("ab") && !shown.contains("171"), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let mut bytes = bytes;
            for prefixed in [false, true] {
                if prefixed {
                    bytes.splice(0..0, *b"FJH\x01");
                }
                if let Ok(handle) = Handle::from_bytes(&bytes) {
                    assert_eq!(handle.to_bytes(), bytes);
                }
            }
        }
    }
}
