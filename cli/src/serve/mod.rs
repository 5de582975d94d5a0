//! `serve`: a target that runs until a signal stops it.

mod arguments;
mod limits;
mod warnings;

use std::path::{Path, PathBuf};
use std::process;

#[cfg(feature = "bitcode")]
use farjump::{BitcodeUse, CompilerOptions};
use farjump::{Data, FamilyId, Library, Rights, Target};
use farjump_handles::Store;
use serde_json::json;

use arguments::Destination;
pub(crate) use arguments::Serve;

use crate::objects::failure;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::link_options::KeyFile;
use farjump_benches::program::output;
use farjump_benches::program::signals::TargetEnd;
use farjump_benches::program::units::counted;
use limits::limits;

pub(crate) fn run(arguments: &Serve) -> Result<(), Failure> {
    let end = TargetEnd::catch(arguments.grace)?;
    warnings::of(arguments);
    buffer_lines();
    let mut data = match &arguments.data {
        Some(file) => Data::open(file)?,
        None => Data::empty(),
    };
    let mut builder = Target::listen(&arguments.listen)
        .args(&mut data)
        .process_symbols(arguments.allow_process_symbols)
        .rights(arguments.rights.instead_of(Rights::default()))
        .allow_export(arguments.allow_export)
        .modes(&arguments.modes)
        .perf_map(arguments.perf_map)
        .crash_report(true)
        .ucx_tcp(arguments.ucx.tcp)
        .clear(arguments.clear.clear)
        .store_capacity(arguments.store_bytes, arguments.store_images)
        .arena_size(arguments.arena_size)
        .mailbox_size(arguments.mailbox)
        .handshake_timeout(arguments.handshake_timeout)
        .allow_making(arguments.allow_making)
        .forward_limits(arguments.forward_limits.limits())
        .limits(limits(arguments));
    for library in &arguments.exports {
        // SAFETY: the user names `library` for this process to load (`--export`).
        builder = unsafe { builder.export_library(path_or_soname(library)) };
    }
    for soname in &arguments.wanted {
        // SAFETY: the user names `soname` for this process to load (`--wanted-library`).
        builder = unsafe { builder.wanted_library(soname) };
    }
    for library in &arguments.locals {
        builder = builder.local(&Library::open(library)?);
    }
    // Otherwise FARJUMP_DEBUG decides.
    if arguments.debug {
        builder = builder.debug(true);
    }
    for library in &arguments.symbols {
        builder = builder.debug_symbols(library);
    }
    for Destination { name, address } in &arguments.destinations {
        builder = builder.destination(name, address);
    }
    for codes in &arguments.codes {
        builder = builder.allow_code(codes.0.iter().copied());
        // An id may be a family's as well.
        builder = builder.allow_family(codes.0.iter().map(|id| FamilyId(id.0)));
    }
    if let Some(level) = arguments.cpu_level {
        builder = builder.cpu_level(level);
    }
    #[cfg(feature = "bitcode")]
    if let Some((options, when)) = arguments.bitcode.choices() {
        builder = builder.compiler(options, when);
    }
    if let Some(store) = objects(arguments)? {
        builder = builder.objects(store.service());
    }
    if let Some(policy) = arguments.spin {
        builder = builder.wait_policy(policy);
    }
    if let Some(transport) = &arguments.transport {
        builder = builder.transport(transport);
    }
    if let Some(file) = arguments.key.listening_at(&arguments.listen) {
        builder = builder.key_file(file);
    }
    let addresses = || arguments.destinations.iter().map(|destination| destination.address.as_str());
    let peer_key = match &arguments.peer_key {
        Some(file) => KeyFile { file: Some(file.clone()) }.read(addresses())?,
        None => arguments.key.read(addresses())?,
    };
    if let Some(key) = peer_key {
        builder = builder.peer_key(key);
    }
    if let Some(time) = arguments.peer_timeout.time {
        builder = builder.peer_timeout(time);
    }
    let mut target = builder.build()?;
    end.serves(target.stopper());
    let (address, pid) = (target.address(), process::id());
    if arguments.json {
        output::print_line(json!({ "ready": address, "pid": pid }))?;
    } else {
        output::print_line(format_args!("ready: {address} (pid {pid})"))?;
    }
    target.run()?;
    let stats = target.stats();
    if arguments.json {
        let figures = json!({
            "calls": stats.calls,
            "images_linked": stats.images_linked,
            "refused": stats.refusals(),
            "links": stats.links,
        });
        output::note(json!({ "stopped": figures, "pid": pid }));
        return Ok(());
    }
    output::note(format_args!(
        "stopped: {}, {} linked, {} refused, {}",
        counted(stats.calls, "call"),
        counted(stats.images_linked, "image"),
        counted(stats.refusals(), "frame"),
        counted(stats.links, "source")
    ));
    Ok(())
}

/// Makes the store of objects; `None` if the target has none.
fn objects(arguments: &Serve) -> Result<Option<Store>, Failure> {
    let Some(capacity) = arguments.objects else { return Ok(None) };
    let mut options = Store::options().capacity(capacity as u64);
    if let (Some(folder), Some(bytes)) = (&arguments.objects_spill, arguments.objects_spill_bytes) {
        options = options.spill(folder, bytes as u64);
    }
    options.build().map(Some).map_err(failure)
}

#[cfg(feature = "bitcode")]
impl arguments::Bitcode {
    /// Returns the compiler's choices; `None` if the target takes no bitcode.
    fn choices(&self) -> Option<(CompilerOptions, BitcodeUse)> {
        let when = match self.when.as_deref()? {
            "prefer" => BitcodeUse::Preferred,
            _ => BitcodeUse::Fallback,
        };
        let mut options = CompilerOptions::default();
        options.program = self.compiler.clone();
        options.llvm = self.llvm.as_deref().map(path_or_soname);
        options.cache = self.bitcode_cache.clone();
        options.deadline = self.compile_timeout;
        if let Some(bytes) = self.compile_memory {
            options.memory = bytes as u64;
        }
        Some((options, when))
    }
}

/// Takes an existing file as a path; any other bare name is left to the dynamic linker's search.
fn path_or_soname(library: &Path) -> PathBuf {
    let bare = library.components().count() == 1 && !library.has_root();
    if bare && library.exists() { Path::new(".").join(library) } else { library.to_owned() }
}

/// Buffers standard output by line, so output of injected code appears at once in a pipe or a file too.
fn buffer_lines() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: `stdout` of stdio.h, not yet written to, as setvbuf(3) requires; it allocates its own buffer.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}
