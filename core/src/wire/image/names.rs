//! The name table, checked in one pass whatever the imports contain.

use alloc::vec::Vec;
use core::ffi::CStr;

use super::{ImageError, MAX_SYMBOL, MAX_WANTED, is_soname};
use crate::cpu::{MAX_FEATURE, MAX_FEATURES, option_word};

/// Checks the list of features at the start of `names`, and returns its end.
pub(super) fn check_features(names: &[u8]) -> Result<usize, ImageError> {
    let list = name_at(names, 0).ok_or(ImageError::Features)?;
    let mut last = None;
    for (index, word) in list.split(|&byte| byte == b' ').enumerate() {
        if index == MAX_FEATURES {
            return Err(ImageError::Features);
        }
        let feature = option_word(word, MAX_FEATURE).ok_or(ImageError::Feature { index })?;
        if last.is_some_and(|last| feature <= last) {
            return Err(ImageError::FeatureOrder { index });
        }
        last = Some(feature);
    }
    Ok(list.len() + 1)
}

/// Checks the names of `count` wanted libraries in `names` from `start` on, and returns their end.
pub(super) fn check_wanted(names: &[u8], start: usize, count: usize) -> Result<usize, ImageError> {
    if count > MAX_WANTED {
        return Err(ImageError::WantedCount { count });
    }
    let (mut end, mut last) = (start, None);
    for index in 0..count {
        let name = name_at(names, end).and_then(|name| core::str::from_utf8(name).ok());
        let name = name.filter(|name| is_soname(name)).ok_or(ImageError::Wanted { index })?;
        if last.is_some_and(|last| name <= last) {
            return Err(ImageError::WantedOrder { index });
        }
        last = Some(name);
        end += name.len() + 1;
    }
    Ok(end)
}

/// Checks that `names` from `start` on holds each name that `offsets` (one for each import, in order) refer
/// to once, in the order of first use, and nothing else. So one content has one encoding. The lengths of both
/// bound the work.
pub(super) fn check_imports(
    names: &[u8],
    start: usize,
    offsets: impl Iterator<Item = u32>,
) -> Result<(), ImageError> {
    let mut known = Vec::new();
    // End of the names used so far; the next new name must start here.
    let mut end = start;
    for (index, offset) in offsets.enumerate() {
        let offset = offset as usize;
        if (start..end).contains(&offset) && (offset == start || names[offset - 1] == 0) {
            continue;
        }
        let name = Some(end).filter(|end| *end == offset).and_then(|_| name_at(names, offset));
        match name {
            Some(name) if is_usable(name) => {
                end += name.len() + 1;
                known.push(name);
            }
            _ => return Err(ImageError::Name { index }),
        }
    }
    known.sort_unstable();
    if end != names.len() || known.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(ImageError::Names);
    }
    Ok(())
}

/// The name at `offset` of the table, if it has an end.
pub(super) fn name_at(names: &[u8], offset: usize) -> Option<&[u8]> {
    CStr::from_bytes_until_nul(names.get(offset..)?).ok().map(CStr::to_bytes)
}

fn is_usable(name: &[u8]) -> bool {
    (1..=MAX_SYMBOL).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}
