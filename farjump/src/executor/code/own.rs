//! Code that the program runs in its own target, without a link.

use std::sync::Arc;

use farjump_control::{RefusalCause, plain};
use farjump_core::icache;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{CodeKey, Copied, Domain, Library, LinkedImage, Manifest, code_id};

use crate::executor::code::bind::Incoming;
use crate::executor::code::table::Unbound;
use crate::executor::{Ended, Executor};
use crate::mode::Mode;
use crate::policy::ByFamily;
use crate::refusal::Refusal;
use crate::{CallError, Error};

/// Code for [`Target::call`](crate::Target::call).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum OwnCode<'a> {
    /// The function of a library. Its payload routines make the payload of the arguments.
    Library(&'a Library),
    /// An image or bitcode ([`LibraryImage::bytes`](crate::LibraryImage::bytes)). The arguments are the payload. Each
    /// call hashes the bytes: call code by its id ([`OwnCode::Stored`]) once it is stored.
    Image {
        /// The function's name, for messages and for `farjump stats`.
        name: &'a str,
        /// The image.
        bytes: &'a [u8],
    },
    /// Code in the target's store, from any source. The arguments are the payload.
    Stored(CodeId),
}

impl<'a> From<&'a Library> for OwnCode<'a> {
    fn from(library: &'a Library) -> Self {
        OwnCode::Library(library)
    }
}

impl From<CodeId> for OwnCode<'_> {
    fn from(id: CodeId) -> Self {
        OwnCode::Stored(id)
    }
}

/// The code that an [`OwnCode`] stands for on this CPU.
pub(crate) struct Chosen<'a> {
    id: CodeId,
    name: &'a str,
    /// The image or bitcode, if that is here.
    bytes: Option<&'a [u8]>,
    manifest: Option<&'a Manifest>,
}

impl Chosen<'_> {
    /// The function's name, or its code id.
    pub(crate) fn name(&self) -> String {
        if self.name.is_empty() { self.id.to_string() } else { self.name.to_owned() }
    }

    pub(crate) fn family(&self) -> Option<FamilyId> {
        self.manifest.map(Manifest::id)
    }
}

impl Executor {
    /// The image of `code` for this CPU.
    ///
    /// # Errors
    /// [`Error::Library`] if a library has none.
    pub(crate) fn choose<'c>(&self, code: OwnCode<'c>) -> Result<Chosen<'c>, Error> {
        Ok(match code {
            OwnCode::Library(library) => {
                let image = library.image_for_cpu(self.store.cpu())?;
                let manifest = library.manifest().map(|manifest| &**manifest);
                Chosen { id: image.id(), name: library.name(), bytes: Some(image.bytes()), manifest }
            }
            OwnCode::Image { name, bytes } => {
                Chosen { id: code_id(bytes), name, bytes: Some(bytes), manifest: None }
            }
            OwnCode::Stored(id) => Chosen { id, name: "", bytes: None, manifest: None },
        })
    }

    /// Finds the code in the store, or places it with the checks of code that a source brings. `space_was_made` is as in
    /// [`Incoming`].
    pub(crate) fn find_own(
        &mut self,
        code: &Chosen<'_>,
        domain: Domain,
        space_was_made: bool,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let linked = self.find_chosen(code, domain.key(code.id), space_was_made)?;
        if let Some(family) = code.family() {
            linked.set_family(family);
        }
        Ok(linked)
    }

    fn find_chosen(
        &mut self,
        code: &Chosen<'_>,
        key: CodeKey,
        space_was_made: bool,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let Chosen { name, bytes, .. } = *code;
        match bytes {
            None => self.allow(Mode::Cached)?,
            Some(_) => self.allow(Mode::Cached).or_else(|_| self.allow(Mode::Always))?,
        }
        self.allow_own(code)?;
        if let Some(linked) = self.store.get(key) {
            return Ok(Arc::clone(linked));
        }
        let Some(bytes) = bytes else {
            return Err(not_stored(&key.id).into());
        };
        icache::supported().map_err(|why| Refusal::new(RefusalCause::WrongMachine, why))?;
        if self.awaits(&key) {
            return Err(Unbound::Compiling);
        }
        let mut copied = Copied::new(bytes, name.as_bytes());
        let origin = &Arc::from("the target itself");
        self.bring(Incoming { key, copied: &mut copied, origin, budget: None, space_was_made })
    }

    /// Checks the code's id against the allow-list.
    fn allow_own(&mut self, code: &Chosen<'_>) -> Result<(), Refusal> {
        let Err(refusal) = self.policy.code(&code.id) else { return Ok(()) };
        if let Some(manifest) = code.manifest {
            self.policy.learn(manifest);
            if self.policy.code(&code.id).is_ok() {
                return Ok(());
            }
        }
        match self.policy.by_family(code.id, code.family(), code.bytes, refusal.clone())? {
            ByFamily::Allowed => Ok(()),
            ByFamily::NeedsManifest(_) | ByFamily::NeedsImage => Err(refusal),
        }
    }

    /// Checks that the call of `name` that ended so ran to its end. Its reply is then in [`Executor::reply`].
    pub(crate) fn check_ended(&self, name: &str, ended: Ended) -> Result<(), Error> {
        match ended {
            Ended::Returned | Ended::Held | Ended::Forwarded => Ok(()),
            Ended::Panicked => {
                let message = plain(&String::from_utf8_lossy(self.reply()), usize::MAX);
                Err(Error::Call(CallError::Panicked { ifunc: name.to_owned(), message }))
            }
            Ended::ReplyTooLarge => {
                let text = format!("the function replied more than {} bytes", self.reply_limit);
                Err(refused(name, Refusal { cause: RefusalCause::ReplyTooLarge, text }))
            }
        }
    }
}

#[cold]
fn not_stored(id: &CodeId) -> Refusal {
    let text = format!(
        "the target does not hold code {id}: call it by its library or its image, or have a source bring it"
    );
    Refusal { cause: RefusalCause::CodeMissing, text }
}

/// The error of a call of `name` that the target refused.
#[cold]
pub(crate) fn refused(name: &str, Refusal { cause, text }: Refusal) -> Error {
    Error::Call(CallError::Refused { ifunc: name.to_owned(), cause, text })
}
