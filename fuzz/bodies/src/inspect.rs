//! The body for `farjump inspect`. Its input is a file.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use farjump_builder::inspect as inspector;
use farjump_loader::library::bundle::is_name;

use crate::{assert_words, file_of};

/// Inspects a file that is in memory only.
pub fn inspect(data: &[u8]) {
    let file = file_of(data);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let report = match inspector::inspect(&path) {
        Ok(report) => report,
        Err(error) => {
            assert!(error.to_string().contains("/proc/self/fd/"), "{error} does not say of which file");
            return assert_words(&error);
        }
    };
    assert!(is_name(&report.name), "{:?} names no ifunc", report.name);
    assert!(!report.images.is_empty());
    for routine in &report.routines {
        assert!(routine.starts_with(&report.name), "{routine} is not of {}", report.name);
    }
    for image in &report.images {
        assert!(image.bytes <= data.len() && image.id.len() == 32);
        assert!(
            (image.align.is_power_of_two() || image.llvm.is_some() && image.align == 0)
                && image.payload_align.is_none_or(u32::is_power_of_two)
        );
    }
    let shown = report.to_string();
    let plain = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
    assert!(shown.chars().all(plain), "{shown:?} is not fit for a terminal");
}
