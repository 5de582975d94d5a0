//! Options of all commands that connect to targets: the key, time limits, and unencrypted frames.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use farjump::{Error, Key as Secret};
use farjump_control::PeerAddress;

use crate::program::failure::Failure;
use crate::program::units::parse_duration;

// The key of a command that connects to targets. It is read only if an address is one of TCP.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
pub struct KeyFile {
    /// The key for tcp: addresses, the same as the peer's (`farjump key`)
    #[arg(id = "key", long, value_name = "FILE", env = "FARJUMP_KEY", hide_env = true)]
    pub file: Option<PathBuf>,
}

// Time for which a silent machine counts as alive.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
pub struct PeerTimeout {
    /// Time for which the peer's machine may be silent before the peer counts as gone, on tcp: addresses; 1s
    /// to 32767s [default: 10s]
    #[arg(id = "peer-timeout", long, value_name = "T", value_parser = parse_timeout)]
    pub time: Option<Duration>,
}

// Permission to send frames unencrypted.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Clone, Copy, Debug)]
pub struct Clear {
    /// Let frames travel unencrypted by `tcp` although both processes have a key, if the peer allows it
    /// too: for networks that you trust. The control connection is encrypted in any case
    #[arg(long)]
    pub clear: bool,
}

impl KeyFile {
    /// Returns the file, for a target that listens at `address`, if that is one of TCP.
    pub fn listening_at(&self, address: &str) -> Option<&PathBuf> {
        self.file.as_ref().filter(|_| address.starts_with("tcp:"))
    }

    /// Returns the key, if one of `addresses` is one of TCP and there is a file.
    pub fn read<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Result<Option<Secret>, Failure> {
        let needed = addresses.into_iter().any(|address| address.starts_with("tcp:"));
        match &self.file {
            Some(file) if needed => Ok(Some(Secret::read(file).map_err(Error::from)?)),
            _ => Ok(None),
        }
    }
}

// The device of transports over RDMA.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Clone, Debug)]
pub struct RdmaDevice {
    /// The RDMA device and port for verbs-write and verbs-send: rxe0, rxe0:1 (`farjump transports` lists
    /// them) [default: the nearest active one, or the one that reaches the peer]
    #[cfg(feature = "verbs")]
    #[arg(id = "device", long, value_name = "NAME[:PORT]")]
    pub name: Option<String>,
}

/// The device of this process, which the processes that it starts use, too.
static DEVICE: OnceLock<String> = OnceLock::new();

impl RdmaDevice {
    /// Makes this process, and those that it starts, use the device.
    ///
    /// # Errors
    /// The text names no device.
    pub fn choose(&self) -> Result<(), Failure> {
        #[cfg(feature = "verbs")]
        if let Some(name) = &self.name {
            farjump_transports::verbs::choose_device(name)
                .map_err(|why| Failure::usage(format!("--device: {why}")))?;
            DEVICE.get_or_init(|| name.clone());
        }
        Ok(())
    }
}

/// Returns the device that was chosen on the command line.
pub fn chosen_device() -> Option<&'static str> {
    DEVICE.get().map(String::as_str)
}

/// Permission for UCX to use TCP.
#[derive(Args, Clone, Copy, Debug)]
pub struct UcxTcp {
    /// Let ucx-am use UCX's TCP, which the peer has to allow too. A process that reaches a UCX port may then write this
    /// process's memory, with or without the key (docs/security.md). `tcp` reaches other machines without that
    #[arg(long = "ucx-tcp")]
    pub tcp: bool,
}

impl UcxTcp {
    /// Returns the options of the transports.
    pub fn options(self) -> farjump::transports::BackendOptions {
        farjump::transports::BackendOptions::new().with_ucx_tcp(self.tcp)
    }
}

/// Accepts the name of a transport, in this build or not.
///
/// # Errors
/// A sentence for the user.
pub fn parse_transport(text: &str) -> Result<String, String> {
    farjump_transports::check_name(text).map_err(|unknown| unknown.to_string())?;
    Ok(text.to_owned())
}

/// Accepts an address of a target.
///
/// # Errors
/// A sentence for the user.
pub fn parse_address(text: &str) -> Result<String, String> {
    text.parse::<PeerAddress>().map_err(|malformed| malformed.to_string())?;
    Ok(text.to_owned())
}

/// Accepts the values that the system takes: whole seconds, in 15 bits.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if (1..=32_767).contains(&time.as_secs()) => Ok(time),
        _ => Err("a machine may be silent for 1s to 32767s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_timeout_is_from_1_to_32767_seconds() {
        assert_eq!(parse_timeout("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_timeout("32767s"), Ok(Duration::from_secs(32_767)));
        for wrong in ["0s", "999ms", "32768s", "long"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn the_help_of_the_device_says_that_the_nearest_is_taken() {
        let help = RdmaDevice::augment_args(clap::Command::new("serve")).render_long_help().to_string();
        assert!(help.contains("[default: the nearest active one"), "{help}");
    }

    #[test]
    fn a_key_is_looked_at_only_where_it_is_needed() {
        let missing = KeyFile { file: Some("no/such/key".into()) };
        assert!(missing.read(["unix:tcp:x", "unix:a"]).expect("it is not looked at").is_none());
        let error = missing.read(["unix:a", "tcp:node7:1"]).unwrap_err().to_string();
        assert!(error.contains("no/such/key"), "{error}");
        assert!(KeyFile { file: None }.read(["tcp:node7:1"]).expect("there is none").is_none());
    }
}
