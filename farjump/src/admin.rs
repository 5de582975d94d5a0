//! Admin requests to a running target, from any process of its user: list or drop stored code, read
//! statistics, load libraries.
//!
//! `farjump store`, `farjump stats` and `farjump export` send the same requests. A requester makes no link and does not
//! count as a source. The target responds between two frames. Sources notice only the time that this takes
//! (`docs/guide/operations.md`).
//!
//! ```
//! # fn main() -> Result<(), farjump::Error> {
//! # let socket = std::env::temp_dir().join(format!("farjump-doc-admin-{}", std::process::id()));
//! # let address = format!("unix:{}", socket.display());
//! # let target = farjump::Target::listen(&address).build()?.spawn()?;
//! use farjump::admin::Admin;
//!
//! let admin = Admin::new(&address)?;
//! for image in admin.store()?.images {
//!     println!("{} took {} ns in {} calls", image.name, image.time.as_nanos(), image.calls);
//! }
//! println!("{} links", admin.stats()?.links);
//! # Ok(())
//! # }
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farjump_control::{
    AdminRequest, AdminResponse, DeferredFd, HandshakeError, Key, PeerAddress, TcpOptions, request_descriptor,
};
use farjump_core::image::CodeId;

pub use farjump_control::{
    Dropped, MAX_LISTED, Memory, MemoryKeeper, ObjectListing, ObjectState, SourceStats, StoreListing,
    StoreStats, StoredImage, StoredObject, TargetStats,
};

use crate::Error;

/// Default limit for an admin request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends admin requests to the target at an address. Each request opens and closes its own connection, so it also
/// reaches a target that was restarted ([`TargetStats::epoch`] distinguishes the runs).
///
/// All requests fail with [`crate::ConnectError::Handshake`]: when no process listens there; when the
/// listener is no target, or another user's; when the target rejects the request or the right to it is
/// missing ([`TargetBuilder::rights`](crate::TargetBuilder::rights)); when the target ends before it
/// responds, or does not respond in time.
#[derive(Clone, Debug)]
pub struct Admin {
    address: PeerAddress,
    timeout: Duration,
    tcp: TcpOptions,
}

/// The memory of a target's store, as the target returned it.
#[derive(Debug)]
pub struct ObjectMemory {
    descriptor: DeferredFd,
    /// Its length in bytes.
    pub len: u64,
    /// Whether this process may write there.
    pub may_write: bool,
    /// The store's epoch ([`Region::epoch`](crate::objects::Region::epoch)).
    pub epoch: u64,
}

impl AsFd for ObjectMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Admin {
    /// Returns a requester for the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`). Sends nothing yet.
    ///
    /// # Errors
    /// [`crate::ConnectError::Handshake`] when the address is malformed.
    pub fn new(address: &str) -> Result<Admin, Error> {
        Ok(Admin { address: address.parse()?, timeout: PATIENCE, tcp: TcpOptions::default() })
    }

    /// Sets the time limit of each request. A target responds once the function that it runs has returned. Default: 10
    /// seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Admin {
        self.timeout = timeout;
        self
    }

    /// Sets the key that this process shares with a target at `tcp:HOST:PORT`. It has no effect on Unix sockets.
    #[must_use]
    pub fn key(mut self, key: Key) -> Admin {
        self.tcp.key = Some(key);
        self
    }

    /// Lists the code in the target's store, most recently used first.
    ///
    /// # Errors
    /// See [`Admin`].
    pub fn store(&self) -> Result<StoreListing, Error> {
        match self.request(AdminRequest::Store)? {
            AdminResponse::Store(listing) => Ok(listing),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Drops code from the target's store, with its statics. Calls under way are not lost: the target requests the code
    /// again from a source that has called it or calls it again. Local functions of the target
    /// ([`crate::TargetBuilder::local`]) stay.
    ///
    /// # Errors
    /// See [`Admin`]. Absence of such code is no error.
    pub fn drop_code(&self, id: &CodeId) -> Result<Dropped, Error> {
        self.dropped(AdminRequest::Drop { id: id.0 })
    }

    /// Drops all code from the target's store, as [`Admin::drop_code`] does for one.
    ///
    /// # Errors
    /// See [`Admin`].
    pub fn drop_all(&self) -> Result<Dropped, Error> {
        self.dropped(AdminRequest::DropAll)
    }

    /// Reads the target's statistics and its list of sources.
    ///
    /// # Errors
    /// See [`Admin`].
    pub fn stats(&self) -> Result<TargetStats, Error> {
        match self.request(AdminRequest::Stats)? {
            AdminResponse::Stats(stats) => Ok(stats),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Makes the target load a shared library, whose bytes are `library`, and offer its symbols before all
    /// other exports. Code that is linked from then on gets them. Code linked before keeps its addresses
    /// until it is dropped ([`Admin::drop_all`]) and comes again. Services of farjump (`farjump_reply`)
    /// cannot be replaced. The library's constructors run, its dependencies are looked up at the target, and
    /// it stays loaded until the process ends. `name` names it in the target's messages.
    ///
    /// Returns the names that it replaces, in alphabetical order, at most [`MAX_LISTED`]: functions and data
    /// that code would have got from the target or from an earlier library.
    ///
    /// # Errors
    /// See [`Admin`]. The target refuses if this process has no right to it
    /// ([`TargetBuilder::allow_export`](crate::TargetBuilder::allow_export)), and with the message of its
    /// dynamic linker if loading fails. [`crate::ConnectError::Handshake`] for a library of more than 64 MiB.
    pub fn export(&self, name: &str, library: &[u8]) -> Result<Vec<String>, Error> {
        let request = AdminRequest::Export { name: name.to_owned(), library: library.to_vec() };
        match self.request(request)? {
            AdminResponse::Exported { replaced } => Ok(replaced),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Lists the objects of the target's store.
    ///
    /// # Errors
    /// See [`Admin`]. The target refuses if it has no store.
    pub fn objects(&self) -> Result<ObjectListing, Error> {
        match self.request(AdminRequest::Objects)? {
            AdminResponse::Objects(listing) => Ok(listing),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Requests the memory of the target's store. Does not check its descriptor.
    ///
    /// # Errors
    /// See [`Admin`]. The target refuses if it has no store, or is on another machine.
    pub fn object_memory(&self) -> Result<ObjectMemory, Error> {
        match self.request_with(AdminRequest::Region)? {
            (AdminResponse::Region { len, may_write, epoch }, Some(descriptor)) => {
                Ok(ObjectMemory { descriptor, len, may_write, epoch })
            }
            (other, _) => Err(self.beside_the_point(&other)),
        }
    }

    fn dropped(&self, request: AdminRequest) -> Result<Dropped, Error> {
        match self.request(request)? {
            AdminResponse::Dropped(dropped) => Ok(dropped),
            other => Err(self.beside_the_point(&other)),
        }
    }

    fn request(&self, request: AdminRequest) -> Result<AdminResponse, Error> {
        self.request_with(request).map(|(response, _)| response)
    }

    fn request_with(&self, request: AdminRequest) -> Result<(AdminResponse, Option<DeferredFd>), Error> {
        let now = Instant::now();
        // A timeout beyond the range of the clock is cut to one that is never reached.
        let deadline = now.checked_add(self.timeout).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        Ok(request_descriptor(&self.address, &self.tcp, request, deadline)?)
    }

    fn beside_the_point(&self, response: &AdminResponse) -> Error {
        let peer = self.address.to_string();
        HandshakeError::OutOfOrder { peer, expected: "the response to the request", got: response.name() }
            .into()
    }
}
