//! The socket on which a target accepts processes.

use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farjump_os::deferred_close;
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    shutdown, socket_with,
};

use crate::address::PeerAddress;
use crate::connection::socket::ControlSocket;
use crate::connection::{Control, Role};
use crate::keys::Keys;
use crate::refusal::RejectCause;
use crate::tcp::{self, TcpOptions};

use crate::error::{require_key_feature, system};
use crate::{ConnectError, HandshakeError, Operation};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Longest wait for another process that is taking the same path.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A socket that sources connect to. A Unix socket admits only processes of the same user: its file has mode
/// 0600 from its creation, and each connection is checked again. A TCP port admits holders of the key, or
/// without a key processes of the same user on this machine.
#[derive(Debug)]
pub struct Listener {
    /// Set for a Unix socket. Dropped first: while the socket listens, no other process takes the file over.
    file: Option<SocketFile>,
    socket: ListeningSocket,
    address: PeerAddress,
    options: TcpOptions,
}

/// A listening socket. Closing a Unix socket closes its unaccepted connections and descriptors sent there.
#[derive(Debug)]
struct ListeningSocket {
    descriptor: ManuallyDrop<OwnedFd>,
    is_unix: bool,
    /// The process that listens. A forked child has a copy, and must not stop the listening.
    process: u32,
}

/// The file of a Unix socket, removed when this is dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another file at the path is not removed.
    id: (u64, u64),
    /// The process that listens: a forked child that drops its copy leaves the file.
    process: u32,
}

impl Listener {
    /// Starts to listen on `address` without a key, like [`Listener::bind_with`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(address: &PeerAddress) -> Result<Listener, ConnectError> {
        Listener::bind_with(address, TcpOptions::default())
    }

    /// Starts to listen on `address`. Takes over a socket file that a dead target left. Of the addresses of a
    /// TCP host it takes the first that works; without a key all of them must be loopback.
    ///
    /// # Errors
    /// [`ConnectError::InUse`] or [`ConnectError::PortTaken`] when a process listens there,
    /// [`ConnectError::NotASocket`] when something else is there (it is left alone),
    /// [`ConnectError::KeyMissing`], [`ConnectError::FeatureMissing`], [`ConnectError::Denied`],
    /// [`ConnectError::System`].
    pub fn bind_with(address: &PeerAddress, options: TcpOptions) -> Result<Listener, ConnectError> {
        match address {
            PeerAddress::Unix(path) => Listener::bind_unix(address, path, options),
            PeerAddress::Tcp { host, port } => Listener::bind_tcp(address, host, *port, options),
        }
    }

    fn bind_tcp(
        address: &PeerAddress,
        host: &str,
        port: u16,
        options: TcpOptions,
    ) -> Result<Listener, ConnectError> {
        require_key_feature(address)?;
        let addresses = tcp::resolve(host, port, None)?;
        options.check(address, &addresses)?;
        let mut outcome = Err(Errno::ADDRNOTAVAIL);
        for one in &addresses {
            outcome = tcp::listen_at(one, BACKLOG);
            if outcome.is_ok() {
                break;
            }
        }
        let (socket, port) = outcome.map_err(|errno| match errno {
            Errno::ADDRINUSE => ConnectError::PortTaken { address: address.clone() },
            errno => system(Operation::Listen, address, errno).into(),
        })?;
        let address = PeerAddress::Tcp { host: host.to_owned(), port };
        let socket = ListeningSocket::new(socket, false);
        Ok(Listener { socket, address, file: None, options })
    }

    fn bind_unix(address: &PeerAddress, path: &Path, options: TcpOptions) -> Result<Listener, ConnectError> {
        let failed = |operation, error: io::Error| ConnectError::from(system(operation, address, error));
        let name = SocketAddrUnix::new(path).map_err(|error| failed(Operation::Listen, error.into()))?;
        // Between `bind` and `listen`, and between finding a stale file and removing it, another target that
        // starts would take this one's file for stale.
        let _lock = lock_directory(path);
        remove_stale(address, path, &name)?;
        let new_socket = || -> Result<OwnedFd, Errno> {
            let socket = stream_socket()?;
            // The mode of the unbound socket becomes the file's (unix(7)), so the file never has another one.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &name)?;
            Ok(socket)
        };
        let socket = match new_socket() {
            Ok(socket) => socket,
            Err(Errno::ADDRINUSE) => return Err(ConnectError::InUse { address: address.clone() }),
            Err(error) => return Err(failed(Operation::Listen, error.into())),
        };
        let metadata = fs::symlink_metadata(path).map_err(|error| failed(Operation::ReadMetadata, error))?;
        let id = (metadata.dev(), metadata.ino());
        let file = SocketFile { path: path.to_owned(), id, process: std::process::id() };
        let socket = ListeningSocket::new(socket, true);
        let listener = Listener { socket, address: address.clone(), file: Some(file), options };
        listen(&listener.socket, BACKLOG).map_err(|error| failed(Operation::Listen, error.into()))?;
        Ok(listener)
    }

    /// Accepts the next process that has connected; returns `None` if there is none now.
    ///
    /// # Errors
    /// The listener stays usable after each. [`HandshakeError::OtherUser`] for a process of another user,
    /// which is rejected with this cause. [`HandshakeError::OwnerUnknown`] or
    /// [`HandshakeError::OwnUserUnknown`] when its user is not known. [`HandshakeError::System`], for example
    /// when this process has no file descriptors left, or cannot close those that peers passed; the listener
    /// stays readable.
    pub fn accept(&self) -> Result<Option<Control>, HandshakeError> {
        if self.file.is_some() && deferred_close::is_clogged() {
            let object = format!(
                "{}, while {} descriptors or more that peers passed cannot be closed,",
                self.address,
                deferred_close::MOST_STUCK
            );
            return Err(system(Operation::Accept, object, Errno::MFILE).into());
        }
        let mut control = loop {
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) if self.file.is_some() => break Control::new(socket)?,
                Ok(socket) => match Control::over_tcp(socket, &self.options, Role::Target) {
                    Ok(control) => break control,
                    // The peer is gone already.
                    Err(error) => log::debug!("{}: {error}", self.address),
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) if is_of_one_connection(error) => {}
                Err(error) => {
                    return Err(system(Operation::Accept, &self.address, error).into());
                }
            }
        };
        let error = match control.admit() {
            Ok(()) => return Ok(Some(control)),
            Err(error) => error,
        };
        let text = match &error {
            HandshakeError::OtherUser { uid, own, .. } => {
                format!("it runs as user {own} and admits processes of that user only; you are user {uid}")
            }
            HandshakeError::OwnerUnknown { .. } => "it does not see which user you are, and admits processes of its own user only: connect from a user \
                 namespace whose users it knows, or over TCP give both sides a key"
                .to_owned(),
            HandshakeError::OwnUserUnknown { uid, .. } => format!(
                "it does not know which user it is itself (user {uid} stands for all that its user namespace does not map), and admits \
                 processes of its own user only: have it started as a user that the namespace maps, or over TCP give both sides \
                 a key"
            ),
            _ => return Err(error),
        };
        control.reject(RejectCause::OtherUser, &text);
        Err(error)
    }

    /// Accepts only these keys from now on, from sources that connect over TCP.
    pub fn take_keys(&mut self, keys: Keys) {
        self.options.keys = Some(keys);
    }

    /// Returns the address it listens on, with the port that the system chose if that was left open.
    pub fn address(&self) -> &PeerAddress {
        &self.address
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ListeningSocket {
    fn new(descriptor: OwnedFd, is_unix: bool) -> ListeningSocket {
        let (descriptor, process) = (ManuallyDrop::new(descriptor), std::process::id());
        ListeningSocket { descriptor, is_unix, process }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and no other code takes the descriptor.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        if !self.is_unix {
            return drop(descriptor);
        }
        // Stops new connections, so that the queue of waiting ones ends.
        if self.process == std::process::id() && shutdown(&descriptor, Shutdown::Both).is_ok() {
            loop {
                match accept_with(&descriptor, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(waiting) => drop(ControlSocket::unix(waiting)),
                    Err(error) if is_of_one_connection(error) => {}
                    // Shut down and empty.
                    Err(Errno::INVAL) => return drop(descriptor),
                    Err(_) => break,
                }
            }
        }
        deferred_close::close(descriptor);
    }
}

impl Drop for SocketFile {
    /// Removes the file if it is still this listener's.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let same = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.id);
        if same && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{}: could not be removed: {error}", self.path.display());
        }
    }
}

/// Returns whether an error of accept(2) concerns only the connection accepted: others may wait behind it.
fn is_of_one_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
    )
}

fn stream_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket file on which no process listens. Anything else there is an error and stays.
fn remove_stale(address: &PeerAddress, path: &Path, name: &SocketAddrUnix) -> Result<(), ConnectError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(Operation::ReadMetadata, path.display(), error).into()),
    };
    if !metadata.file_type().is_socket() {
        return Err(ConnectError::NotASocket { path: path.to_owned() });
    }
    // A listening process can send descriptors at once, so closing this socket must not block either.
    let attempt = stream_socket().and_then(ControlSocket::unix).map(|socket| connect(&socket, name));
    match attempt {
        Ok(Err(Errno::CONNREFUSED)) => {}
        Ok(Err(Errno::NOENT)) => return Ok(()),
        Ok(Err(Errno::ACCESS | Errno::PERM)) => {
            return Err(ConnectError::Denied { address: address.clone() });
        }
        // Connected, a full backlog, or a socket of another kind that is in use.
        Ok(Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE)) => {
            return Err(ConnectError::InUse { address: address.clone() });
        }
        Ok(Err(error)) | Err(error) => {
            return Err(system(Operation::Probe, address, error).into());
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(system(Operation::RemoveStale, path.display(), error).into())
        }
        _ => Ok(()),
    }
}

/// Locks the directory of a path against other targets that take a path there. The lock ends with the file,
/// and leaves nothing behind. Returns `None` without the lock: two targets that start at the same instant on
/// the same stale path may then both believe that they have it, which is no reason not to start.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = File::open(directory).ok()?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY)
            }
            Err(_) => return None,
        }
    }
}
