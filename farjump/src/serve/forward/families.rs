//! Images for other machines, which a target passes on without running them.
//!
//! A source sends the image that suits this CPU. A destination with another CPU needs another image of the same family.
//! The target requests that image from its own source, and each target on the way does the same, up to the first
//! source. Manifests and images are known by their hashes, so any source may send them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_core::code::CodeView;
use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{CodeKey, Domain, LinkedImage, Manifest, code_id};

use super::Caller;
use super::named::{FamilyKey, NamedCode};
use crate::executor::Executor;
use crate::link::{PassedImage, Wanted};

/// Most families kept. There are more only while each of them has a request under way.
const FAMILIES: usize = 64;
/// Most sources kept of a family.
const SOURCES: usize = 16;
/// Most bytes of images kept; the newest stays in any case.
const IMAGE_BYTES: usize = 16 << 20;

/// The outcome of a search.
pub(super) enum Found<T> {
    Here(T),
    /// A source has the request, and has not responded yet.
    Waits,
    /// It is unavailable, for this reason.
    Not(String),
}

/// An image that another CPU runs.
pub(super) enum Other {
    /// One of the target's own store.
    Stored(Arc<LinkedImage>),
    Passed(Arc<PassedImage>),
}

/// A family of code that was forwarded.
struct Family {
    key: FamilyKey,
    manifest: Option<Arc<Manifest>>,
    /// The sessions whose frames named it, in the order of their first frames. Requests go to the first one, which
    /// named the family before this target could have sent it anywhere. So no circle of targets sends itself a request.
    sources: Vec<u64>,
    /// The reason why the last source with a request sent nothing.
    failure: Option<String>,
}

/// A request without a response.
struct PendingRequest {
    family: FamilyKey,
    wanted: Wanted,
    session: u64,
    until: Instant,
}

impl PendingRequest {
    /// Returns whether this is the request for `wanted` to a source of `domain`.
    fn is_for(&self, wanted: Wanted, domain: Domain) -> bool {
        self.wanted == wanted && self.family.domain == domain
    }
}

/// Families, images for other machines, and requests under way.
pub(super) struct Families {
    /// The one used last is the last.
    families: Vec<Family>,
    /// Likewise, with the domains of their sources.
    images: Vec<(Domain, Arc<PassedImage>)>,
    pending: Vec<PendingRequest>,
    /// Requests to be sent to sessions.
    unsent: Vec<(u64, Wanted)>,
    patience: Duration,
}

impl Families {
    /// Each response of a source may take `patience`.
    pub(super) fn new(patience: Duration) -> Families {
        Families {
            families: Vec::new(),
            images: Vec::new(),
            pending: Vec::new(),
            unsent: Vec::new(),
            patience,
        }
    }

    /// Notes that a session called code of this family.
    pub(super) fn note(&mut self, key: FamilyKey, session: u64) {
        let family = self.family(key);
        if !family.sources.contains(&session) {
            family.sources.truncate(SOURCES - 1);
            family.sources.push(session);
        }
    }

    /// The family with this key, which becomes the one used last.
    fn family(&mut self, key: FamilyKey) -> &mut Family {
        match self.families.iter().rposition(|family| family.key == key) {
            Some(index) => self.families[index..].rotate_left(1),
            None => {
                let pending = &self.pending;
                let is_idle = |family: &Family| pending.iter().all(|request| request.family != family.key);
                if self.families.len() >= FAMILIES
                    && let Some(oldest) = self.families.iter().position(is_idle)
                {
                    self.families.remove(oldest);
                }
                self.families.push(Family { key, manifest: None, sources: Vec::new(), failure: None });
            }
        }
        let last = self.families.len() - 1;
        &mut self.families[last]
    }

    /// The image of `linked`'s family that runs on `cpu`, for a call of this caller.
    pub(super) fn image_for(
        &mut self,
        linked: &LinkedImage,
        family: Option<FamilyId>,
        caller: &Caller,
        cpu: &Cpu,
        executor: &Executor,
    ) -> Found<Other> {
        let there = cpu.platform();
        let Some(id) = family else {
            return Found::Not(format!(
                "it runs on {there}, and the code is the only image of its library, for {}: build the library for both",
                linked.label()
            ));
        };
        let family = FamilyKey::of(id, caller);
        if !self.knows(family) {
            // Dropped while the call waited for the destination.
            self.note(family, caller.session);
        }
        let manifest = match self.manifest(family, executor) {
            Found::Here(manifest) => manifest,
            Found::Waits => return Found::Waits,
            Found::Not(why) => return Found::Not(why),
        };
        let Some((kind, code)) = manifest.code_for(cpu) else {
            let offered: Vec<_> = manifest.images().iter().map(|(offered, _)| offered.to_string()).collect();
            return Found::Not(format!(
                "the library has no image for {there} (it has {}): build it for that too",
                offered.join(", ")
            ));
        };
        let found = self.image(family, code, executor);
        let Found::Here(other) = &found else { return found };
        let bytes = match other {
            Other::Stored(linked) => linked.image(),
            Other::Passed(passed) => passed.bytes(),
        };
        match CodeView::new_checked(bytes) {
            Ok(view) if view.kind() != kind => Found::Not(format!(
                "the manifest of family {id} lies: code {code} is for {}, not {kind}",
                view.kind()
            )),
            Ok(view) if view.payload_align_log2() != linked.payload_align_log2() => {
                Found::Not(format!("the images of family {id} do not have the same payload alignment"))
            }
            Ok(_) => found,
            Err(error) => Found::Not(format!("the image for {there}, code {code}, is damaged: {error}")),
        }
    }

    fn knows(&self, key: FamilyKey) -> bool {
        self.families.iter().any(|family| family.key == key)
    }

    /// The manifest of a family.
    pub(super) fn manifest(&mut self, key: FamilyKey, executor: &Executor) -> Found<Arc<Manifest>> {
        let id = key.id;
        if let Some(library) = executor.local_of_family(&id)
            && let Some(manifest) = library.manifest()
        {
            return Found::Here(Arc::clone(manifest));
        }
        if !self.knows(key) {
            return Found::Not(format!("no source has named family {id}"));
        }
        match &self.family(key).manifest {
            Some(manifest) => Found::Here(Arc::clone(manifest)),
            None => self.request(key, Wanted::Manifest(id)),
        }
    }

    /// Returns the image with this id, if calls on the requesting link have named it, or a family whose manifest has
    /// it.
    pub(super) fn named_image(&mut self, id: CodeId, named: &NamedCode, executor: &Executor) -> Found<Other> {
        let lists = |family: &&Family| {
            named.has_family(&family.key) && family.manifest.as_ref().is_some_and(|one| one.contains(&id))
        };
        if let Some(family) = self.families.iter().rev().find(lists).map(|family| family.key) {
            return self.image(family, id, executor);
        }
        let of_own = |family: &&FamilyKey| {
            let manifest = executor.local_of_family(&family.id).and_then(|library| library.manifest());
            manifest.is_some_and(|manifest| manifest.contains(&id))
        };
        let own = || named.families().find(of_own).map(|family| family.domain.key(id));
        let kept = named.code(&id).or_else(own).and_then(|key| self.kept(key, executor));
        kept.map_or_else(|| Found::Not("no call has named it".to_owned()), Found::Here)
    }

    fn image(&mut self, family: FamilyKey, id: CodeId, executor: &Executor) -> Found<Other> {
        match self.kept(family.domain.key(id), executor) {
            Some(other) => Found::Here(other),
            None => self.request(family, Wanted::Code(id)),
        }
    }

    /// The image with this key, if it is here.
    fn kept(&mut self, key: CodeKey, executor: &Executor) -> Option<Other> {
        let CodeKey { id, domain } = key;
        if let Some(linked) = executor.image(key) {
            return Some(Other::Stored(Arc::clone(linked)));
        }
        if let Some(index) = self.position(key) {
            self.images[index..].rotate_left(1);
            return self.images.last().map(|(_, image)| Other::Passed(Arc::clone(image)));
        }
        let own = executor.local_image(&id)?;
        let passed = Arc::new(PassedImage::new(id, own.bytes().to_vec()));
        self.keep(domain, Arc::clone(&passed));
        Some(Other::Passed(passed))
    }

    fn position(&self, CodeKey { id, domain }: CodeKey) -> Option<usize> {
        self.images.iter().position(|(of, image)| *of == domain && image.id() == id)
    }

    fn keep(&mut self, domain: Domain, image: Arc<PassedImage>) {
        self.images.push((domain, image));
        let mut bytes: usize = self.images.iter().map(|(_, image)| image.bytes().len()).sum();
        while bytes > IMAGE_BYTES && self.images.len() > 1 {
            bytes -= self.images.remove(0).1.bytes().len();
        }
    }

    /// Sends a request to the first source of the family that has not failed to respond, one request at a time.
    fn request<T>(&mut self, key: FamilyKey, wanted: Wanted) -> Found<T> {
        let now = Instant::now();
        if let Some(request) = self.pending.iter().find(|request| request.is_for(wanted, key.domain)) {
            if now < request.until {
                return Found::Waits;
            }
            let why = format!("its source has not sent {wanted} within {:?}", self.patience);
            self.failed(request.session, wanted, why);
        }
        let until = now + self.patience;
        let family = self.family(key);
        let Some(&session) = family.sources.first() else {
            let why = family.failure.clone();
            return Found::Not(why.unwrap_or_else(|| format!("no source is left that could send {wanted}")));
        };
        self.pending.push(PendingRequest { family: key, wanted, session, until });
        self.unsent.push((session, wanted));
        Found::Waits
    }

    /// Takes the requests for sessions. One of the next three functions ends each.
    pub(super) fn take_unsent(&mut self) -> Vec<(u64, Wanted)> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes a manifest that a session sent on request.
    pub(super) fn take_manifest(&mut self, session: u64, key: FamilyKey, text: &[u8]) {
        let id = key.id;
        let wanted = Wanted::Manifest(id);
        match Manifest::parse(text) {
            Ok(manifest) if manifest.id() == id => {
                self.family(key).manifest = Some(Arc::new(manifest));
                self.pending.retain(|request| !request.is_for(wanted, key.domain));
            }
            Ok(other) => {
                self.failed(
                    session,
                    wanted,
                    format!("its source sent the manifest of family {} for {wanted}", other.id()),
                );
            }
            Err(error) => self.failed(session, wanted, format!("its source sent for {wanted}: {error}")),
        }
    }

    /// Takes an image that a session sent on request.
    pub(super) fn take_image(&mut self, session: u64, key: CodeKey, image: Vec<u8>) {
        let CodeKey { id, domain } = key;
        let wanted = Wanted::Code(id);
        if code_id(&image) != id {
            return self.failed(session, wanted, format!("its source sent other code for {wanted}"));
        }
        self.pending.retain(|request| !request.is_for(wanted, domain));
        if self.position(key).is_none() {
            self.keep(domain, Arc::new(PassedImage::new(id, image)));
        }
    }

    /// Notes that a session cannot send `wanted`. The next request goes to the next source of the family, if there is
    /// one.
    pub(super) fn failed(&mut self, session: u64, wanted: Wanted, why: String) {
        let Some(index) =
            self.pending.iter().position(|request| request.session == session && request.wanted == wanted)
        else {
            return;
        };
        log::info!("no image to forward: {why}");
        let family = self.pending.swap_remove(index).family;
        let family = self.family(family);
        family.sources.retain(|source| *source != session);
        family.failure = Some(why);
    }

    /// Drops a session, which has ended.
    pub(super) fn source_ended(&mut self, session: u64) {
        for family in &mut self.families {
            family.sources.retain(|source| *source != session);
        }
        while let Some(wanted) =
            self.pending.iter().find(|request| request.session == session).map(|request| request.wanted)
        {
            self.failed(session, wanted, format!("its source ended before it sent {wanted}"));
        }
    }

    /// Time at which the next request times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|request| request.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_images_of_one_domain_are_not_those_of_another() {
        let executor = Executor::builder().build().unwrap();
        let mut families = Families::new(Duration::from_secs(600));
        let id = FamilyId([7; 16]);
        let [one, other] = [0, 1].map(|number| FamilyKey { id, domain: Domain::numbered(number) });
        families.note(one, 3);
        assert!(matches!(families.manifest(one, &executor), Found::Waits));
        assert!(matches!(families.manifest(other, &executor), Found::Not(_)));
        assert_eq!(families.take_unsent(), [(3, Wanted::Manifest(id))]);
        // Each domain has a request to its own source.
        families.note(other, 4);
        assert!(matches!(families.manifest(other, &executor), Found::Waits));
        assert_eq!(families.take_unsent(), [(4, Wanted::Manifest(id))]);
        let code = code_id(b"an image");
        families.take_image(3, one.domain.key(code), b"an image".to_vec());
        assert!(families.kept(one.domain.key(code), &executor).is_some());
        assert!(families.kept(other.domain.key(code), &executor).is_none());
        assert!(matches!(families.image(other, code, &executor), Found::Waits));
        assert_eq!(families.take_unsent(), [(4, Wanted::Code(code))]);
        families.take_image(4, other.domain.key(code), b"an image".to_vec());
        assert_eq!(families.images.len(), 2);
        // The end of one domain's source does not end the other's request.
        families.source_ended(3);
        assert!(matches!(families.manifest(one, &executor), Found::Not(_)));
        assert!(matches!(families.manifest(other, &executor), Found::Waits));
    }
}
