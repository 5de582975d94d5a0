//! Where a target waits for processes to connect.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use super::address::PeerAddress;
use super::control::Control;
use super::identity::admit;
use super::message::MeetRefusal;
use crate::Error;

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 128;
/// How long to wait for another process that is taking the same path.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// How often to look meanwhile.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A socket that sources connect to. Only processes of the same user can: the socket's file has mode 0600 from the moment
/// it exists, and each that connects is checked again.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket's file: another file at the path is not removed.
    file: (u64, u64),
}

impl Listener {
    /// Begins to listen on `address`. A socket file that a target left behind is taken over.
    ///
    /// # Errors
    /// [`Error::InUse`] when something listens there, [`Error::NotASocket`] when something else is there (it is left
    /// alone), [`Error::Denied`], [`Error::TcpUnsupported`], [`Error::System`].
    pub fn bind(address: &PeerAddress) -> Result<Listener, Error> {
        let PeerAddress::Unix(path) = address else {
            return Err(Error::TcpUnsupported { address: address.clone() });
        };
        let system = |what: &str, error: io::Error| Error::system(format!("{what} {address}"), error);
        let name = SocketAddrUnix::new(path).map_err(|error| system("listening on", error.into()))?;
        // Between `bind` and `listen`, and between finding a stale file and removing it, another target that starts would
        // take this one's file for stale.
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
            Err(Errno::ADDRINUSE) => return Err(Error::InUse { address: address.clone() }),
            Err(error) => return Err(system("listening on", error.into())),
        };
        let metadata = fs::symlink_metadata(path).map_err(|error| system("looking at", error))?;
        let listener = Listener { socket, path: path.clone(), file: (metadata.dev(), metadata.ino()) };
        listen(&listener.socket, BACKLOG).map_err(|error| system("listening on", error.into()))?;
        Ok(listener)
    }

    /// The next process that has connected; `None` if there is none now.
    ///
    /// # Errors
    /// The listener goes on after each. [`Error::OtherUser`] for a process that was refused, and told so, because it runs
    /// as another user. [`Error::System`], for example when this process has no file descriptors left; then the listener
    /// stays readable.
    pub fn accept(&self) -> Result<Option<Control>, Error> {
        let socket = loop {
            match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => break socket,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    let doing = format!("accepting a connection on {}", self.path.display());
                    return Err(Error::system(doing, error));
                }
            }
        };
        let control = Control::new(socket)?;
        let (uid, own) = (control.peer().uid, rustix::process::geteuid().as_raw());
        if admit(uid, own) {
            return Ok(Some(control));
        }
        let error = Error::OtherUser { peer: control.peer().to_string(), uid, own };
        let text =
            format!("it runs as user {own} and admits processes of that user only; you are user {uid}");
        control.refuse(MeetRefusal::OtherUser, &text);
        Err(error)
    }

    /// Path of the socket, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    /// Removes the socket's file, if it is still this listener's.
    fn drop(&mut self) {
        // Nobody takes the file over meanwhile: the socket still listens.
        let same = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file);
        if same && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{}: could not be removed: {error}", self.path.display());
        }
    }
}

fn stream_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket file on which nobody listens. Anything else that is there is an error and stays.
fn remove_stale(address: &PeerAddress, path: &Path, name: &SocketAddrUnix) -> Result<(), Error> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::system(format!("looking at {}", path.display()), error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(Error::NotASocket { path: path.to_owned() });
    }
    let attempt = stream_socket().map(|socket| connect(&socket, name));
    match attempt {
        Ok(Err(Errno::CONNREFUSED)) => {}
        Ok(Err(Errno::NOENT)) => return Ok(()),
        Ok(Err(Errno::ACCESS | Errno::PERM)) => return Err(Error::Denied { address: address.clone() }),
        // Connected, a full queue of connections, or a socket of another kind that is in use.
        Ok(Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE)) => {
            return Err(Error::InUse { address: address.clone() });
        }
        Ok(Err(error)) | Err(error) => {
            return Err(Error::system(format!("trying whether anybody listens on {address}"), error));
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::system(format!("removing the stale socket {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// Keeps other targets from taking a path in the same directory while this one does. The lock ends with the file, and
/// leaves nothing behind. `None` where it cannot be had: then two targets that start at the same instant on the same
/// stale path may both believe that they have it, which is no reason not to start.
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
