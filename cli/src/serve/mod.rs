//! `serve`: a target that runs until a signal stops it.

mod arguments;
mod config_file;
mod warnings;

use std::path::{Path, PathBuf};
use std::process;

use farjump::config::TargetConfig;
use farjump::{Data, Target};
use farjump_handles::{Store, StoreConfig};
use serde_json::json;

pub(crate) use arguments::Serve;

use crate::objects::failure;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::signals::TargetEnd;
use farjump_cli::program::units::counted;

pub(crate) fn run(arguments: &Serve) -> Result<(), Failure> {
    let file = arguments.config.as_deref().map_or(Ok(Vec::new()), config_file::read)?;
    let options = arguments.options.resolve_over(&file)?;
    if arguments.show_config {
        return output::print(config_file::show(&options));
    }
    let mut config = options.config.clone();
    let listen = config.listen.as_deref().ok_or_else(|| {
        Failure::usage(
            "there is no address to listen at: give --listen ADDRESS, or `listen` in the file of --config",
        )
    })?;
    let is_debugged = config.debug.is_some() || std::env::var_os("FARJUMP_DEBUG").is_some();
    if !config.debug_symbols.is_empty() && !is_debugged {
        let option = options.words_for("debug-symbols");
        return Err(Failure::usage(format!(
            "{option} has no effect without --debug: give that too, or leave it out"
        )));
    }
    let end = TargetEnd::catch(arguments.grace)?;
    warnings::of(&options);
    buffer_lines();
    config.export_library.iter_mut().chain(&mut config.llvm).for_each(path_or_soname);
    let store = objects(&config)?;
    let mut builder = Target::listen(listen).config(config.clone()).crash_report(true);
    // SAFETY: the user names the libraries for this process to load (`--export-library`, `--wanted-library`).
    builder = unsafe { builder.load_libraries() };
    if config.data.is_none() {
        builder = builder.args_owned(Data::empty());
    }
    if let Some(store) = store {
        builder = builder.objects(store.service());
    }
    let mut target = builder.build().map_err(|error| options.failure(error))?;
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
fn objects(config: &TargetConfig) -> Result<Option<Store>, Failure> {
    let Some(capacity) = config.objects else { return Ok(None) };
    let store = StoreConfig {
        capacity: Some(capacity as u64),
        spill_folder: config.objects_spill_folder.clone(),
        spill_bytes: config.objects_spill_bytes.map(|bytes| bytes as u64),
        ..StoreConfig::default()
    };
    Store::options().config(store).build().map(Some).map_err(failure)
}

/// Takes an existing file as a path; any other bare name is left to the dynamic linker's search.
fn path_or_soname(library: &mut PathBuf) {
    let bare = library.components().count() == 1 && !library.has_root();
    if bare && library.exists() {
        *library = Path::new(".").join(&*library);
    }
}

/// Buffers standard output by line, so output of injected code appears at once in a pipe or a file too.
fn buffer_lines() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: `stdout` of stdio.h, not yet written to, as setvbuf(3) requires; it allocates its own buffer.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}
