//! The demo's handle to its target process: starting it, and reading from its socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::Demo;
use farjump_benches::program::failure::Failure;
use farjump_benches::program::workspace::{Stage, this_program_by};

/// Longest time for the target to start, and then between parts of the file.
const PATIENCE: Duration = Duration::from_secs(20);
/// Name of the target's socket in the workspace folder, with its slash.
const SOCKET: &str = "/target.sock";

/// Starts the target on `file`, which has `bytes` bytes, and waits until it is ready.
pub(super) fn start(
    stage: &Stage,
    file: &Path,
    arguments: &Demo,
    bytes: usize,
) -> Result<DemoTarget, Failure> {
    let launch = arguments.launch.as_deref().unwrap_or_default();
    let failed = |error| match launch {
        "" => Failure::new(format!("cannot start the target process: {error}")),
        launch => Failure::new(format!("cannot start the target process by `{launch}`: {error}")),
    };
    let (stream, theirs) = UnixStream::pair().map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let own = format!("unix:{}{}", stage.folder().display(), SOCKET);
    let address = arguments.listen.as_ref().unwrap_or(&own);
    let mut command = this_program_by(launch);
    command.arg("demo-target").arg("--data").arg(file).arg("--listen").arg(address);
    command.arg("--folder").arg(stage.folder());
    if let Some(transport) = &arguments.transport {
        command.arg("--transport").arg(transport);
    }
    if arguments.ucx.tcp {
        command.arg("--ucx-tcp");
    }
    if arguments.clear {
        command.arg("--clear");
    }
    if let Some(key) = &arguments.key.file {
        command.arg("--key").arg(key);
    }
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let pid = stage.start(&mut command).map_err(failed)?.id();
    // The command's copy of the target's end of the socket would hide the end of the stream.
    drop(command);
    let mut target = DemoTarget { stream, address: String::new(), pid, bytes };
    match target.read_ready() {
        Ok(len) if len == bytes as u64 => Ok(target),
        Ok(_) => Err(Failure::new("the file changed its length while the demo started: try one that stays")),
        // The target has printed the cause on standard error.
        Err(error) => Err(Failure::new(format!("the target process did not get ready: {error}"))),
    }
}

/// The target process, and the socket on which it sends the file on request.
pub(super) struct DemoTarget {
    stream: UnixStream,
    address: String,
    pid: u32,
    bytes: usize,
}

impl DemoTarget {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the bytes of the file in the target, moved over the socket.
    pub(super) fn fetch(&mut self) -> Result<Vec<u8>, Failure> {
        let failed = |error| Failure::new(format!("the target did not send its file: {error}"));
        self.stream.write_all(&[1]).map_err(failed)?;
        let mut bytes = vec![0; self.bytes];
        self.stream.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Reads the message of a ready target: the lengths of the file and of its address, and the address.
    fn read_ready(&mut self) -> io::Result<u64> {
        let (mut len, mut address_len) = ([0; 8], [0; 2]);
        self.stream.read_exact(&mut len)?;
        self.stream.read_exact(&mut address_len)?;
        let mut address = vec![0; u16::from_le_bytes(address_len).into()];
        self.stream.read_exact(&mut address)?;
        self.address = String::from_utf8(address).map_err(io::Error::other)?;
        Ok(u64::from_le_bytes(len))
    }
}

impl Drop for DemoTarget {
    fn drop(&mut self) {
        // Asks the target to end, in case it is not killed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
