//! The ids that stand for users and groups which a user namespace does not map (user_namespaces(7)).

use std::fs;

/// The value of both if the system does not report them.
const DEFAULT: u32 = 65_534;

/// Returns the user id of unknown users. An administrator can change it, so it is read each time.
pub fn overflow_uid() -> u32 {
    read("/proc/sys/kernel/overflowuid")
}

/// Returns the group id of unknown groups.
pub(crate) fn overflow_gid() -> u32 {
    read("/proc/sys/kernel/overflowgid")
}

fn read(file: &str) -> u32 {
    let text = fs::read_to_string(file).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT)
}
