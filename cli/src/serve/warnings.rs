//! Warnings of values that are valid, and of no use on this machine.

use std::env;
use std::fs;
use std::path::Path;

use farjump_os::{limits, resources};

use super::Serve;
use farjump_benches::program::output;
use farjump_benches::program::units::show_limit;

/// The dynamic linker's list of libraries, and the folders that it searches behind it.
const CACHE: &str = "/etc/ld.so.cache";
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Warns of such values on standard error.
pub(super) fn of(arguments: &Serve) {
    let memory = resources::memory();
    for (option, bytes) in [
        ("--objects", arguments.objects),
        ("--store-bytes", Some(arguments.store_bytes)),
        ("--arena-size", Some(arguments.arena_size)),
        ("--max-source-memory", arguments.max_source_memory),
        #[cfg(feature = "bitcode")]
        ("--compile-memory", arguments.bitcode.compile_memory),
    ] {
        let Some(bytes) = bytes.filter(|bytes| *bytes as u64 > memory) else { continue };
        // Shows a GiB or more in whole GiB.
        let whole = if memory >> 30 == 0 { memory } else { memory >> 30 << 30 };
        let (bytes, memory) = (show_limit(bytes), show_limit(whole as usize));
        warn(&format!(
            "{option} is {bytes}, and this process may use {memory} of memory: the system ends processes before that limit \
             is met; give less"
        ));
    }
    if let (Some(sources), Some(limit)) = (arguments.max_sources, limits::descriptors())
        && u64::from(sources) > limit
    {
        warn(&format!(
            "--max-sources is {sources}, and the limit of descriptors, of which each source takes some, is {limit}: raise \
             that (`ulimit -n`), or give fewer"
        ));
    }
    let missing = arguments.wanted.iter().filter(|name| !is_installed(name));
    for name in missing {
        warn(&format!(
            "--wanted-library: the dynamic linker has no `{name}`: install it; until then code that wants it is refused"
        ));
    }
}

fn warn(text: &str) {
    output::note(format_args!("warning: {text}"));
}

/// Returns whether the dynamic linker finds a library by this soname, as far as a look without loading it shows.
fn is_installed(soname: &str) -> bool {
    let variable = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = env::split_paths(&variable).filter(|folder| !folder.as_os_str().is_empty());
    let in_folder = |folder: &Path| folder.join(soname).exists();
    // The list has each soname with a zero byte behind it.
    let line = [soname.as_bytes(), b"\0"].concat();
    let is_listed = |cache: Vec<u8>| cache.windows(line.len()).any(|part| part == line);
    named.into_iter().any(|folder| in_folder(&folder))
        || FOLDERS.iter().any(|folder| in_folder(folder.as_ref()))
        || fs::read(CACHE).map_or(true, is_listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_library_is_found_and_an_absent_one_is_not() {
        assert!(is_installed("libc.so.6"));
        assert!(!is_installed("libnosuch.so.1") || !Path::new(CACHE).exists());
    }
}
