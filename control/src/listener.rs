//! The socket on which a target accepts processes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farjump_os::{deferred_close, limits};
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    shutdown, socket_with,
};

use crate::address::PeerAddress;
use crate::connection::socket::ControlSocket;
use crate::connection::{Control, Role};
use crate::key::keys::Keys;
use crate::refusal::RejectCause;
use crate::socket_file::{SocketFile, folder_of};
use crate::tcp::{self, TcpOptions};

use crate::error::{require_key_feature, system};
use crate::{ConnectionError, ControlOperation, FileKind, HandshakeError};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Longest wait for another process that is taking the same path.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A socket that sources connect to. A Unix socket admits only processes of the same user: its file has mode
/// 0600 from its creation, and each connection is checked again. An abstract one has the check alone. A TCP port admits holders of the key, or
/// without a key processes of the same user on this machine.
#[derive(Debug)]
pub struct Listener {
    /// Set for a Unix socket with a path. Dropped first: while the socket listens, no other process takes the
    /// file over.
    _file: Option<SocketFile>,
    socket: ListeningSocket,
    address: PeerAddress,
    options: TcpOptions,
    /// A spare descriptor: if there are no more, it is closed to accept one process and send it the reason.
    spare: Mutex<Option<OwnedFd>>,
}

/// A listening socket. Closing a Unix socket closes its unaccepted connections and descriptors sent there.
#[derive(Debug)]
struct ListeningSocket {
    descriptor: ManuallyDrop<OwnedFd>,
    is_unix: bool,
    /// The process that listens. A forked child has a copy, and must not stop the listening.
    process: u32,
}

impl Listener {
    /// Starts to listen on `address` without a key, like [`Listener::bind_with`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(address: &PeerAddress) -> Result<Listener, ConnectionError> {
        Listener::bind_with(address, TcpOptions::default())
    }

    /// Starts to listen on `address`. Takes over a socket file that a dead target left. Of the addresses of a
    /// TCP host it takes the first that works; without a key all of them must be loopback.
    ///
    /// # Errors
    /// [`ConnectionError::InUse`], [`ConnectionError::NameTaken`] or [`ConnectionError::PortTaken`] when a process
    /// listens there, [`ConnectionError::NotASocket`] when something else is there (it is left alone),
    /// [`ConnectionError::NoFolder`] or [`ConnectionError::FolderDenied`] when no file can be made there,
    /// [`ConnectionError::KeyMissing`], [`ConnectionError::FeatureMissing`], [`ConnectionError::Denied`],
    /// [`ConnectionError::NotWritable`], [`ConnectionError::System`].
    pub fn bind_with(address: &PeerAddress, options: TcpOptions) -> Result<Listener, ConnectionError> {
        match address {
            PeerAddress::Unix(path) => Listener::bind_unix(address, path, options),
            PeerAddress::Abstract(_) => Listener::bind_abstract(address, options),
            PeerAddress::Tcp { host, port } => Listener::bind_tcp(address, host, *port, options),
        }
    }

    fn bind_tcp(
        address: &PeerAddress,
        host: &str,
        port: u16,
        options: TcpOptions,
    ) -> Result<Listener, ConnectionError> {
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
            Errno::ADDRINUSE => ConnectionError::PortTaken { address: address.clone() },
            errno => system(ControlOperation::Listen, address, errno).into(),
        })?;
        let address = PeerAddress::Tcp { host: host.to_owned(), port };
        let socket = ListeningSocket::new(socket, false);
        Ok(Listener::new(None, socket, address, options))
    }

    fn new(
        file: Option<SocketFile>,
        socket: ListeningSocket,
        address: PeerAddress,
        options: TcpOptions,
    ) -> Listener {
        let spare = Mutex::new(spare_descriptor());
        Listener { _file: file, socket, address, options, spare }
    }

    fn bind_abstract(address: &PeerAddress, options: TcpOptions) -> Result<Listener, ConnectionError> {
        let bound = || -> Result<OwnedFd, Errno> {
            let socket = stream_socket()?;
            bind(&socket, &address.socket_address()?)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bound().map_err(|errno| match errno {
            Errno::ADDRINUSE => ConnectionError::NameTaken { address: address.clone() },
            errno => system(ControlOperation::Listen, address, errno).into(),
        })?;
        let socket = ListeningSocket::new(socket, true);
        Ok(Listener::new(None, socket, address.clone(), options))
    }

    fn bind_unix(
        address: &PeerAddress,
        path: &Path,
        options: TcpOptions,
    ) -> Result<Listener, ConnectionError> {
        let failed = |operation, error: io::Error| ConnectionError::from(system(operation, address, error));
        let name =
            address.socket_address().map_err(|error| failed(ControlOperation::Listen, error.into()))?;
        let folder = folder_of(path);
        if !folder.is_dir() {
            return Err(ConnectionError::NoFolder { address: address.clone(), folder: folder.to_owned() });
        }
        // Between `bind` and `listen`, and between finding a stale file and removing it, another target that
        // starts would take this one's file for stale.
        let _lock = lock_directory(path);
        remove_stale(address, path, &name)?;
        let unrestricted = Cell::new(false);
        let new_socket = || -> Result<OwnedFd, Errno> {
            let socket = stream_socket()?;
            // The mode of the unbound socket becomes the file's (unix(7)), so the file never has another one.
            fchmod(&socket, Mode::RUSR | Mode::WUSR).inspect_err(|_| unrestricted.set(true))?;
            bind(&socket, &name)?;
            Ok(socket)
        };
        let (socket, file) = match SocketFile::make(path, new_socket) {
            Ok(made) => made,
            Err(Errno::ADDRINUSE) => return Err(ConnectionError::InUse { address: address.clone() }),
            Err(error) if unrestricted.get() => {
                return Err(failed(ControlOperation::RestrictSocket, error.into()));
            }
            // The folder is there, so ENOENT is a file system's error for this.
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT)) => {
                let (address, folder) = (address.clone(), folder.to_owned());
                return Err(ConnectionError::FolderDenied { address, folder, source: error.into() });
            }
            Err(error) => return Err(failed(ControlOperation::Listen, error.into())),
        };
        let socket = ListeningSocket::new(socket, true);
        let listener = Listener::new(Some(file), socket, address.clone(), options);
        listen(&listener.socket, BACKLOG).map_err(|error| failed(ControlOperation::Listen, error.into()))?;
        Ok(listener)
    }

    /// Accepts the next process that has connected; returns `None` if there is none now.
    ///
    /// # Errors
    /// The listener stays usable after each. [`HandshakeError::OtherUser`] for a process of another user,
    /// which is rejected with this cause. [`HandshakeError::OwnerUnknown`] or
    /// [`HandshakeError::OwnUserUnknown`] when its user is not known. [`HandshakeError::NoDescriptors`] for a
    /// process that was rejected because this one has no descriptors left. [`HandshakeError::System`], for
    /// example when there is not even a descriptor to reject it with, or when descriptors that peers passed
    /// cannot be closed; the listener stays readable.
    pub fn accept(&self) -> Result<Option<Control>, HandshakeError> {
        if self.socket.is_unix && deferred_close::is_clogged() {
            let object = format!(
                "{}, while {} descriptors or more that peers passed cannot be closed,",
                self.address,
                deferred_close::MOST_STUCK
            );
            return Err(system(ControlOperation::Accept, object, Errno::MFILE).into());
        }
        self.keep_spare();
        let mut control = loop {
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) if self.socket.is_unix => break Control::new(socket)?,
                Ok(socket) => match Control::over_tcp(socket, &self.options, Role::Target) {
                    Ok(control) => break control,
                    // The peer is gone already.
                    Err(error) => log::debug!("{}: {error}", self.address),
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) if is_of_one_connection(error) => {}
                Err(error @ (Errno::MFILE | Errno::NFILE)) => return self.turn_away(error),
                Err(error) => {
                    return Err(system(ControlOperation::Accept, &self.address, error).into());
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

    /// Accepts a process on the spare descriptor, sends the reason of the rejection, and closes. `errno` is
    /// the error without the spare one.
    #[cold]
    fn turn_away(&self, errno: Errno) -> Result<Option<Control>, HandshakeError> {
        let failed = |errno| system(ControlOperation::Accept, &self.address, errno).into();
        if self.spare().take().is_none() {
            return Err(failed(errno));
        }
        let socket = match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            // Another thread of this process was quicker, or the process that connected has left.
            Err(again) => {
                self.keep_spare();
                return if again == Errno::AGAIN { Ok(None) } else { Err(failed(again)) };
            }
        };
        let control = match self.socket.is_unix {
            true => Control::new(socket)?,
            false => Control::over_tcp(socket, &self.options, Role::Target)?,
        };
        let peer = control.peer().to_string();
        control.reject(
            RejectCause::Full,
            "it has no file descriptors left for one more source: connect again later, or have its limit of \
             descriptors raised (`ulimit -n`)",
        );
        self.keep_spare();
        Err(HandshakeError::NoDescriptors { peer, advice: limits::behind(&errno.into()) })
    }

    fn spare(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a spare descriptor, if there is none and the system gives one.
    fn keep_spare(&self) {
        let mut spare = self.spare();
        if spare.is_none() {
            *spare = spare_descriptor();
        }
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
                    // Shut down and empty: closed now, so that an abstract name is free at once.
                    Err(Errno::INVAL | Errno::AGAIN) => return drop(descriptor),
                    Err(_) => break,
                }
            }
        }
        deferred_close::close(descriptor);
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

/// Removes the socket file at `path` if no process listens on it: one that a killed process left.
///
/// # Errors
/// [`ConnectionError::InUse`] when a process listens there; otherwise those of [`Listener::bind`]. The file stays.
pub fn remove_stale_socket(path: &Path) -> Result<(), ConnectionError> {
    let address = PeerAddress::Unix(path.to_owned());
    let name =
        SocketAddrUnix::new(path).map_err(|error| system(ControlOperation::Listen, &address, error))?;
    let _lock = lock_directory(path);
    remove_stale(&address, path, &name)
}

/// Removes a socket file on which no process listens. Anything else there is an error and stays.
fn remove_stale(address: &PeerAddress, path: &Path, name: &SocketAddrUnix) -> Result<(), ConnectionError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(ControlOperation::ReadMetadata, path.display(), error).into()),
    };
    if !metadata.file_type().is_socket() {
        let found = FileKind::at(path).unwrap_or_else(|| FileKind::of(metadata.file_type()));
        return Err(ConnectionError::NotASocket { path: path.to_owned(), found });
    }
    // A listening process can send descriptors at once, so closing this socket must not block either.
    let attempt = stream_socket().and_then(ControlSocket::unix).map(|socket| connect(&socket, name));
    match attempt {
        Ok(Err(Errno::CONNREFUSED)) => {}
        Ok(Err(Errno::NOENT)) => return Ok(()),
        Ok(Err(Errno::ACCESS | Errno::PERM)) => return Err(ConnectionError::denied(address, path)),
        // Connected, a full backlog, or a socket of another kind that is in use.
        Ok(Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE)) => {
            return Err(ConnectionError::InUse { address: address.clone() });
        }
        Ok(Err(error)) | Err(error) => {
            return Err(system(ControlOperation::Probe, address, error).into());
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(system(ControlOperation::RemoveStale, path.display(), error).into())
        }
        _ => Ok(()),
    }
}

fn spare_descriptor() -> Option<OwnedFd> {
    File::open("/").ok().map(OwnedFd::from)
}

/// Locks the directory of a path against other targets that take a path there. The lock ends with the file,
/// and leaves nothing behind. Returns `None` without the lock. Two targets that start at the same instant on
/// the same stale path may then both believe that they have the path, which is no reason not to start.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = File::open(folder_of(path)).ok()?;
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
