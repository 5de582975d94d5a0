//! Errors of listening on an address and of connecting to one.

use farjump_core::worded;
use std::fs::{self, FileType};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::{ControlSystemError, HandshakeEvent};
use crate::PeerAddress;

/// A listener or a connection that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// A TCP address in a build without the feature `key`.
    #[error("{address} needs the feature `key`, {}", super::FEATURE_ADVICE)]
    FeatureMissing {
        /// The address.
        address: PeerAddress,
    },
    /// An address on other machines, or reachable from them, without a key.
    #[error(
        "{address} is not on this machine's loopback, and there is no key: make one with `farjump key FILE`, and give a copy to both processes"
    )]
    KeyMissing {
        /// The address.
        address: PeerAddress,
    },
    /// Another target listens on the path.
    #[error("{address} is already in use by a running target: stop it, or listen on another path")]
    InUse {
        /// The address.
        address: PeerAddress,
    },
    /// A process listens on the name of an abstract socket; possibly one of another user.
    #[error(
        "{address}: a process of this network namespace has this name: end that process, or listen on another name"
    )]
    NameTaken {
        /// The address.
        address: PeerAddress,
    },
    /// Another program listens on the port.
    #[error(
        "{address}: another program listens there: stop it, or listen on another port (0 has the system choose one)"
    )]
    PortTaken {
        /// The address.
        address: PeerAddress,
    },
    /// The path exists and is not a socket. It was not touched.
    #[error(
        "{} exists and is no socket but {found}: it was left alone; listen on another path or move it away",
        path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// The kind of the file.
        found: FileKind,
    },
    /// The path to connect to exists and is not a socket.
    #[error("{address} names no socket but {found}: name the socket that the target listens on")]
    NoSocket {
        /// The address.
        address: PeerAddress,
        /// The kind of the file.
        found: FileKind,
    },
    /// The folder of a path to listen on does not exist, or is no folder.
    #[error("{address}: there is no folder {}: make it, or name a path in another one", folder.display())]
    NoFolder {
        /// The address.
        address: PeerAddress,
        /// The folder of the path.
        folder: PathBuf,
    },
    /// A folder in which this process may make no socket.
    #[error(
        "{address}: this process may make no file in {} ({}): listen in a folder that it may write to, for example in $XDG_RUNTIME_DIR",
        folder.display(), source
    )]
    FolderDenied {
        /// The address.
        address: PeerAddress,
        /// The folder of the path.
        folder: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No process listens on the address.
    #[error(
        "no target listens on {address} ({found}): start one, for example with `farjump serve --listen {address}`"
    )]
    NotListening {
        /// The address.
        address: PeerAddress,
        /// The thing that is there instead.
        found: NoListener,
    },
    /// The file's permissions deny this process.
    #[error(
        "no permission to connect to {address}: it belongs to another user, or a folder of its path is closed to this process; a target admits processes of its own user only"
    )]
    Denied {
        /// The address.
        address: PeerAddress,
    },
    /// A socket of this process's user that may not be written.
    #[error(
        "no permission to connect to {address}: the socket is yours, and its mode {mode:04o} forbids you to write to it; run `chmod u+w {}`",
        path.display()
    )]
    NotWritable {
        /// The address.
        address: PeerAddress,
        /// The path.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
    /// A step that timed out.
    #[error("{address} took too long: {awaited} did not come in time{}", awaited.cause())]
    TimedOut {
        /// The address, or its host.
        address: String,
        /// The event waited for.
        awaited: HandshakeEvent,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] ControlSystemError),
}

impl ConnectionError {
    /// The reason why the system denies a connection to the file at `path`. The system checks the permissions
    /// first, and then the kind of the file.
    pub(crate) fn denied(address: &PeerAddress, path: &Path) -> ConnectionError {
        let address = address.clone();
        if let Some(found) = FileKind::at(path) {
            return ConnectionError::NoSocket { address, found };
        }
        match fs::metadata(path) {
            Ok(socket) if socket.uid() == geteuid().as_raw() && socket.mode() & OWNER_WRITES == 0 => {
                ConnectionError::NotWritable {
                    address,
                    path: path.to_owned(),
                    mode: socket.mode() & PERMISSIONS,
                }
            }
            _ => ConnectionError::Denied { address },
        }
    }
}

/// The permission by which the owner of a file may write to it (inode(7)).
const OWNER_WRITES: u32 = 0o200;
/// The permissions in the mode of a file (inode(7)).
const PERMISSIONS: u32 = 0o7777;

worded! {
    /// A kind of file that is no socket.
    #[non_exhaustive]
    FileKind {
        /// A regular file.
        Regular = "a regular file",
        /// A folder.
        Folder = "a folder",
        /// A named pipe.
        Pipe = "a named pipe",
        /// A character or block device.
        Device = "a device",
        /// A symbolic link whose end does not exist, or is in a circle.
        DanglingLink = "a symbolic link to nothing",
        /// A symbolic link to another kind of file, or to a socket.
        Link = "a symbolic link",
        /// Something else.
        Other = "a file of an unknown kind",
    }
}

impl FileKind {
    /// Returns the kind of the file at `path`, following symbolic links; `None` for a socket, and where there
    /// is no file.
    pub(crate) fn at(path: &Path) -> Option<FileKind> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => None,
            Ok(metadata) => Some(FileKind::of(metadata.file_type())),
            Err(_) => fs::symlink_metadata(path)
                .is_ok_and(|metadata| metadata.file_type().is_symlink())
                .then_some(FileKind::DanglingLink),
        }
    }

    /// Returns the kind of a file that is no socket.
    pub(crate) fn of(kind: FileType) -> FileKind {
        match () {
            () if kind.is_file() => FileKind::Regular,
            () if kind.is_dir() => FileKind::Folder,
            () if kind.is_fifo() => FileKind::Pipe,
            () if kind.is_char_device() || kind.is_block_device() => FileKind::Device,
            () if kind.is_symlink() => FileKind::Link,
            () => FileKind::Other,
        }
    }
}

worded! {
    /// The thing at an address where no process listens.
    #[non_exhaustive]
    NoListener {
        /// Nothing: the path does not exist.
        NoFile = "there is no such file",
        /// Not even the folder of the path.
        NoFolder = "there is no such folder",
        /// No abstract socket has this name.
        NoName = "no process of this network namespace has this name",
        /// The socket of a process that has ended.
        Ended = "the one that did has ended",
        /// A socket of another kind.
        OtherSocket = "another kind of socket is there",
        /// A machine that refuses connections to the port.
        PortClosed = "its machine refuses connections there",
    }
}
