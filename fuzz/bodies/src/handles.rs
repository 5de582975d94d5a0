//! The body for handles. Its input is an encoded handle.

use farjump_handles::{Handle, MAX_ADDRESS, MAX_ADDRESSES, MAX_HANDLE, TypedHandle};

use crate::assert_words;

/// Decodes a handle, as its user does.
pub fn handles(data: &[u8]) {
    let handle = match Handle::from_bytes(data) {
        Ok(handle) => handle,
        Err(fault) => return assert_words(&fault),
    };
    assert_eq!(handle.to_bytes(), data, "a handle has two encodings");
    assert!(data.len() <= MAX_HANDLE, "a handle of {} bytes", data.len());
    assert!(handle.addresses().len() <= MAX_ADDRESSES);
    assert!(handle.addresses().iter().all(|address| address.len() <= MAX_ADDRESS));
    if let Ok(typed) = TypedHandle::<u64>::new(handle.clone()) {
        assert_eq!(typed.into_handle().to_bytes(), data, "a typed handle is another one");
    }
}
