//! Addresses of a run's targets: Unix sockets in its folder, or TCP for frames on a stream, as between
//! machines.
//!
//! On TCP the system chooses a target's port, and the target writes its address to a file in the folder.
//! Source and target share a key drawn for the run.

use std::fs;
use std::path::{Path, PathBuf};

use farjump::{Key, Link, LinkBuilder, Target, TargetBuilder};

use super::liveness::{CONNECTING, PATIENCE};
use crate::program::failure::Failure;

/// The transport whose frames travel on a stream.
pub(in crate::perf) const TCP: &str = "tcp";
/// The transport `tcp` without encryption: a name of `perf` alone.
pub(in crate::perf) const TCP_CLEAR: &str = "tcp-clear";
/// The file with the key.
const KEY: &str = "key";

/// Accepts the name of a transport, one of `perf` alone, or `all`.
///
/// # Errors
/// A sentence for the user.
pub(in crate::perf) fn parse_transport(text: &str) -> Result<String, String> {
    if text == "all" || text == TCP_CLEAR {
        return Ok(text.to_owned());
    }
    farjump_transports::check_name(text).map_err(|why| format!("{why}; or all, or {TCP_CLEAR}"))?;
    Ok(text.to_owned())
}

/// Returns the transport behind this name of `perf`.
pub(in crate::perf) fn backend(transport: &str) -> &str {
    if transport == TCP_CLEAR { TCP } else { transport }
}

/// Returns `perf`'s name for a link's transport.
pub(in crate::perf) fn name_of(link: &Link) -> String {
    let path = link.path();
    if path.transport == TCP && path.summary().ends_with(", clear") {
        TCP_CLEAR.to_owned()
    } else {
        path.transport
    }
}

/// Returns the carrier of a link's frames, and whether it is encrypted, if the transport reports them.
pub(in crate::perf) fn lane(link: &Link) -> Option<String> {
    let path = link.path();
    let sealing = path.summary().strip_prefix(&*path.transport).unwrap_or_default().to_owned();
    (!path.route.over.is_empty()).then(|| path.route.over + &sealing)
}

/// Returns whether frames of this transport travel on a stream, and its targets listen at TCP ports.
pub(in crate::perf) fn is_stream(transport: &str) -> bool {
    backend(transport) == TCP
}

/// Draws the key of a run, if one of its transports needs one.
///
/// # Errors
/// The key cannot be drawn or written.
pub(in crate::perf) fn draw_key(folder: &Path, transports: &[String]) -> Result<(), Failure> {
    if transports.iter().any(|transport| is_stream(transport)) {
        Key::create(&folder.join(KEY)).map_err(farjump::Error::from)?;
    }
    Ok(())
}

/// Builds a target that listens on the socket of this name, or on a port of `host`.
///
/// # Errors
/// The run has no key.
pub(in crate::perf) fn target(
    folder: &Path,
    host: &str,
    socket: &str,
    transport: &str,
) -> Result<TargetBuilder<'static>, Failure> {
    if !is_stream(transport) {
        return Ok(Target::listen(&unix(folder, socket)).transport(transport));
    }
    let target = Target::listen(&format!("tcp:{host}:0")).transport(TCP).key(key(folder)?);
    Ok(target.clear(transport == TCP_CLEAR))
}

/// Publishes the target's address to sources, if it is on TCP.
///
/// # Errors
/// The file cannot be written.
pub(in crate::perf) fn announce(
    folder: &Path,
    socket: &str,
    transport: &str,
    target: &Target<'_>,
) -> Result<(), Failure> {
    if !is_stream(transport) {
        return Ok(());
    }
    let file = announced(folder, socket);
    fs::write(&file, target.address())
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", file.display())))
}

/// Returns a link to the target that listens on the socket of this name, with the settings of all links of a
/// run.
///
/// # Errors
/// The target has not published its address.
pub(in crate::perf) fn link(folder: &Path, socket: &str, transport: &str) -> Result<LinkBuilder, Failure> {
    let link = if is_stream(transport) {
        let file = announced(folder, socket);
        let address = fs::read_to_string(&file)
            .map_err(|error| Failure::new(format!("cannot read `{}`: {error}", file.display())))?;
        Link::builder(&address).transport(TCP).key(key(folder)?).clear(transport == TCP_CLEAR)
    } else {
        Link::builder(&unix(folder, socket)).transport(transport)
    };
    Ok(link.connect_timeout(CONNECTING).send_timeout(PATIENCE))
}

/// Returns the address of the Unix socket of this name.
pub(in crate::perf) fn unix(folder: &Path, socket: &str) -> String {
    format!("unix:{}/{socket}", folder.display())
}

fn announced(folder: &Path, socket: &str) -> PathBuf {
    folder.join(format!("{socket}.address"))
}

fn key(folder: &Path) -> Result<Key, Failure> {
    Ok(Key::read(&folder.join(KEY)).map_err(farjump::Error::from)?)
}
