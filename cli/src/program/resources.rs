//! The limits of this process (getrlimit(2)) that a program may change for itself, and a library may not.

use farjump_os::limits;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Descriptors that are enough: programs that are started inherit the limit, and some walk through all numbers.
const ENOUGH: u64 = 65_536;

/// Raises the limit of descriptors as far as this process may, and makes it an error if a file grows too long.
pub(crate) fn prepare() {
    let Rlimit { current, maximum } = limits::of(Resource::Nofile);
    let most = maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if current.is_some_and(|current| current < most) {
        // Within the hard limit this cannot fail but by a filter, and then the limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum });
    }
    // SAFETY: `SIG_IGN` is no function, and nothing else in this program handles this signal. The signal would end the
    // process at the limit of file sizes (`ulimit -f`). As it is ignored, the call fails, and its error is reported.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
