//! Warnings of values that are valid, and of no use on this machine.

use std::env;
use std::fs;
use std::path::Path;

use farjump::config::TargetConfig;
use farjump_os::{limits, resources};

use farjump_cli::program::config_arguments::Resolved;
use farjump_cli::program::output;
use farjump_cli::program::units::show_limit;

/// The dynamic linker's list of libraries, and the folders that it searches behind it.
const CACHE: &str = "/etc/ld.so.cache";
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Warns of such values on standard error.
pub(super) fn of(options: &Resolved<TargetConfig>) {
    let (config, memory) = (&options.config, resources::memory());
    for (name, bytes) in [
        ("store-bytes", config.store_bytes),
        ("max-source-memory", config.max_source_memory),
        ("compile-memory", Some(config.compile_memory)),
    ] {
        let is_given = options.is_given(name);
        let Some(bytes) = bytes.filter(|bytes| is_given && *bytes as u64 > memory) else { continue };
        // Shows a GiB or more in whole GiB.
        let whole = if memory >> 30 == 0 { memory } else { memory >> 30 << 30 };
        let (bytes, memory) = (show_limit(bytes), show_limit(whole as usize));
        warn(&format!(
            "{} is {bytes}, and this process may use {memory} of memory: the system ends processes before that limit \
             is met; give less",
            options.words_for(name)
        ));
    }
    if let Some(limit) = limits::descriptors()
        && options.is_given("max-sources")
        && config.max_sources as u64 > limit
    {
        warn(&format!(
            "{} is {}, and the limit of descriptors, of which each source takes some, is {limit}: raise that (`ulimit \
             -n`), or give fewer",
            options.words_for("max-sources"),
            config.max_sources
        ));
    }
    let missing = config.wanted_library.iter().filter(|name| !is_installed(name));
    for name in missing {
        warn(&format!(
            "{}: the dynamic linker has no `{name}`: install it; until then code that wants it is refused",
            options.words_for("wanted-library")
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
