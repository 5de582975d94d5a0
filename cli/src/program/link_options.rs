//! Options of all commands that connect to targets.

use std::sync::OnceLock;

use farjump::config::LinkConfig;
use farjump_control::PeerAddress;

use crate::program::config_arguments::{Resolved, Selection};
use crate::program::failure::Failure;

/// The options of commands that only look at a target, or connect to one of their own.
#[derive(Clone, Copy, Debug)]
pub enum QueryOptions {}

impl Selection for QueryOptions {
    fn has(name: &str) -> bool {
        name == "transport" || PathOptions::has(name)
    }
}

/// The options of the way to a target, but the transport.
#[derive(Clone, Copy, Debug)]
pub enum PathOptions {}

impl Selection for PathOptions {
    fn has(name: &str) -> bool {
        ["device", "ucx-tcp", "clear", "peer-timeout"].contains(&name) || KeyOption::has(name)
    }
}

/// The key alone.
#[derive(Clone, Copy, Debug)]
pub enum KeyOption {}

impl Selection for KeyOption {
    fn has(name: &str) -> bool {
        name == "key-file"
    }
}

/// The device of this process, which the processes that it starts use, too.
static DEVICE: OnceLock<String> = OnceLock::new();

/// Makes this process, and those that it starts, use the device of a configuration.
///
/// # Errors
/// The text names no device.
pub fn choose_device(options: &Resolved<LinkConfig>) -> Result<(), Failure> {
    #[cfg(feature = "verbs")]
    if let Some(name) = &options.config.device {
        farjump_transports::verbs::choose_device(name)
            .map_err(|why| Failure::usage(format!("{}: {why}", options.words_for("device"))))?;
        DEVICE.get_or_init(|| name.clone());
    }
    // Such a build refuses the option before.
    #[cfg(not(feature = "verbs"))]
    let _ = options;
    Ok(())
}

/// Returns the device that was chosen.
pub fn chosen_device() -> Option<&'static str> {
    DEVICE.get().map(String::as_str)
}

/// Accepts an address of a target.
///
/// # Errors
/// A sentence for the user.
pub fn parse_address(text: &str) -> Result<String, String> {
    text.parse::<PeerAddress>().map_err(|malformed| malformed.to_string())?;
    Ok(text.to_owned())
}
