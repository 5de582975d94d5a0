//! The demo's handle to its target process: starting it, and reading from its socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::Demo;
use farjump::config::{Config, LinkConfig};
use farjump_cli::program::failure::Failure;
use farjump_cli::program::workspace::{Stage, this_program_by};
use farjump_control::PeerAddress;
use farjump_os::limits;

/// Longest time for the target to start, and then between parts of the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// The length of the file of a target that cannot get ready.
pub(super) const NOT_READY: u64 = u64::MAX;
/// The remedy where there is no such launcher.
const LAUNCHER: &str = "Install the launcher, or name another one (--launch)";
/// Name of the target's socket in the workspace folder, with its slash.
const SOCKET: &str = "/target.sock";

/// Starts the target on `file`, and waits until it is ready.
pub(super) fn start(
    stage: &Stage,
    file: &Path,
    arguments: &Demo,
    options: &LinkConfig,
) -> Result<DemoTarget, Failure> {
    let launch = arguments.launch.as_deref().unwrap_or_default();
    let failed = |error: io::Error| {
        let by = if launch.is_empty() { String::new() } else { format!(" by `{launch}`") };
        let advice = limits::behind_program(&error, LAUNCHER);
        Failure::new(format!("cannot start the target process{by}: {error}{advice}"))
    };
    let (stream, theirs) = UnixStream::pair().map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let own = format!("unix:{}{}", stage.folder().display(), SOCKET);
    let address = arguments.listen.as_ref().unwrap_or(&own);
    if let Ok(PeerAddress::Unix(socket)) = address.parse() {
        stage.has_socket(&socket);
    }
    let mut command = this_program_by(launch);
    command.arg("demo-target").arg("--data").arg(file).arg("--listen").arg(address);
    command.arg("--folder").arg(stage.folder());
    for name in ["transport", "ucx-tcp", "clear", "key-file", "peer-timeout"] {
        if let Ok(Some(text)) = options.get(name) {
            command.arg(format!("--{name}={text}"));
        }
    }
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let pid = stage.start(&mut command).map_err(failed)?.id();
    // The command's copy of the target's end of the socket would hide the end of the stream.
    drop(command);
    let mut target = DemoTarget { stream, address: String::new(), pid, len: 0 };
    match target.read_ready() {
        Ok(()) if target.len == NOT_READY => Err(Failure::new(target.address.clone())),
        Ok(()) => Ok(target),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Failure::new("the target process ended before it was ready"))
        }
        Err(error) => Err(Failure::new(format!("the target process did not get ready: {error}"))),
    }
}

/// The target process, and the socket on which it sends the file on request.
pub(super) struct DemoTarget {
    stream: UnixStream,
    address: String,
    pid: u32,
    /// Length of its file in bytes.
    len: u64,
}

impl DemoTarget {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the length of its file in bytes.
    pub(super) fn file_len(&self) -> u64 {
        self.len
    }

    /// Makes the target send its file.
    pub(super) fn fetch(&mut self) -> Result<Parts<'_>, Failure> {
        self.stream.write_all(&[1]).map_err(not_sent)?;
        Ok(Parts { rest: self.len, stream: &self.stream })
    }

    /// Reads the message of a ready target: the lengths of the file and of its address, and the address. A target that
    /// cannot get ready sends [`NOT_READY`], and the reason in place of the address.
    fn read_ready(&mut self) -> io::Result<()> {
        let (mut len, mut address_len) = ([0; 8], [0; 2]);
        self.stream.read_exact(&mut len)?;
        self.stream.read_exact(&mut address_len)?;
        let mut address = vec![0; u16::from_le_bytes(address_len).into()];
        self.stream.read_exact(&mut address)?;
        self.address = String::from_utf8(address).map_err(io::Error::other)?;
        self.len = u64::from_le_bytes(len);
        Ok(())
    }
}

/// The file of the target, on its way here.
pub(super) struct Parts<'a> {
    stream: &'a UnixStream,
    rest: u64,
}

impl Parts<'_> {
    /// Returns the number of bytes that are still to come.
    pub(super) fn rest(&self) -> u64 {
        self.rest
    }

    /// Appends the next bytes of the file to `part`, at most `most`, and returns their number.
    pub(super) fn read_part(&mut self, part: &mut Vec<u8>, most: usize) -> Result<usize, Failure> {
        let due = self.rest.min(most as u64);
        let read = self.stream.take(due).read_to_end(part).map_err(not_sent)?;
        self.rest -= read as u64;
        if (read as u64) < due {
            let text = "it ended early: has the file become shorter, or the target ended?";
            return Err(not_sent(io::Error::other(text)));
        }
        Ok(read)
    }
}

fn not_sent(error: io::Error) -> Failure {
    Failure::new(format!("the target did not send its file: {error}"))
}

impl Drop for DemoTarget {
    fn drop(&mut self) {
        // Requests the target's end, in case the target is not killed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
