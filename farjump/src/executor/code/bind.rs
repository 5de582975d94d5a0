//! Finding and placing the code that frames name.

use std::sync::Arc;
use std::time::Duration;

use farjump_control::RefusalCause;
use farjump_core::bitcode::BitcodeView;
use farjump_core::image::{CodeId, FamilyId};
use farjump_loader::{CodeKey, Copied, Inserted, LinkedImage, Need, Refused};

use crate::executor::code::table::{Binding, Callable, CodeTable, Named, Ready, Unbound, again};
use crate::executor::{Executor, crash};
use crate::mode::Mode;
use crate::policy::{Budget, ByFamily};
use crate::refusal::Refusal;

/// The result for code that a source sent on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Supplied {
    /// The code is bound or refused.
    Settled,
    /// Other code must go first.
    Crowded(Need),
    /// The compiler is at work on it.
    Compiling,
}

/// Code that comes in: with a frame, from a source on request, from a function, or from the program.
pub(in crate::executor) struct Incoming<'a> {
    pub(in crate::executor) key: CodeKey,
    /// The image or bitcode, with the function's name.
    pub(in crate::executor) copied: &'a mut Copied,
    pub(in crate::executor) origin: &'a Arc<str>,
    /// The budget that pays for its memory; `None` for code that no source pays for.
    pub(in crate::executor) budget: Option<&'a mut Budget>,
    /// True if other code was dropped for an earlier attempt ([`Executor::make_space`]). Then this one places the code or
    /// refuses it: a further request for capacity would find none.
    pub(in crate::executor) space_was_made: bool,
}

/// The code that a frame names.
enum Found {
    Here(Arc<LinkedImage>),
    /// It is not in the store.
    Missing,
    /// The compiler is at work on it.
    Compiling,
    /// This manifest decides whether the policy admits the code.
    NeedsManifest(FamilyId),
}

impl Executor {
    /// Checks that calls in this mode are allowed.
    #[inline]
    pub(crate) fn allow(&self, mode: Mode) -> Result<(), Refusal> {
        if self.modes.has(mode) { Ok(()) } else { Err(self.forbidden(mode)) }
    }

    #[cold]
    fn forbidden(&self, mode: Mode) -> Refusal {
        let text = format!(
            "it does not allow mode {mode}, only {}: choose one of these, or have the target allow it (TargetBuilder::modes)",
            self.modes
        );
        Refusal::new(RefusalCause::Policy, text)
    }

    /// Binds `index` to the code that a frame names. Places its image if the frame brought one that is new.
    pub(crate) fn bind(
        &mut self,
        table: &mut CodeTable,
        index: u16,
        named: &mut Named<'_>,
    ) -> Result<Ready, Refusal> {
        let found = self.find(table, index, named);
        match found {
            Err(Unbound::NoSpace(need)) => Ok(Ready::Crowded(need)),
            Ok(Found::Here(linked)) => {
                if let Some(family) = named.family {
                    log::debug!("`{}` ({}) is of family {family}", linked.name(), linked.id());
                    linked.set_family(family);
                }
                let callable = Callable::of(&linked);
                let cached = self.modes.has(Mode::Cached);
                table.bind(
                    index,
                    if cached { Binding::Linked(callable, linked) } else { Binding::Once(callable, linked) },
                );
                Ok(Ready::Yes)
            }
            Ok(Found::NeedsManifest(family)) => Ok(Ready::NeedsManifest(family)),
            Ok(Found::Missing) => {
                let name = String::from_utf8_lossy(named.copied.name());
                table.miss(index, named.id, &name);
                Ok(Ready::Needs(named.id))
            }
            Ok(Found::Compiling) | Err(Unbound::Compiling) => {
                let name = String::from_utf8_lossy(named.copied.name());
                table.miss(index, named.id, &name);
                Ok(Ready::Compiling(named.id))
            }
            Err(Unbound::Refused(refusal)) => {
                table.refuse(index, &refusal);
                Err(refusal)
            }
        }
    }

    fn find(&mut self, table: &mut CodeTable, index: u16, named: &mut Named<'_>) -> Result<Found, Unbound> {
        // In mode always, an image may be the first of many; one that is bound already surely is such a repetition.
        let again = table.bound(index).is_some_and(|(_, linked)| linked.id() == named.id);
        let is_id_alone = named.copied.image().is_empty();
        match (is_id_alone, again) {
            (true, _) => self.allow(Mode::Cached)?,
            (false, true) => self.allow(Mode::Always)?,
            (false, false) => self.allow(Mode::Cached).or_else(|_| self.allow(Mode::Always))?,
        }
        self.of_this_epoch(named.epoch)?;
        let key = table.domain().key(named.id);
        // Checked before the code is requested.
        if let Err(refusal) = self.policy.code(&named.id) {
            let stored = self.store.get(key).map(|linked| linked.image());
            let image = if is_id_alone { stored } else { Some(named.copied.image()) };
            match self.policy.by_family(named.id, named.family, image, refusal)? {
                ByFamily::Allowed => {}
                ByFamily::NeedsManifest(family) => return Ok(Found::NeedsManifest(family)),
                ByFamily::NeedsImage => return Ok(Found::Missing),
            }
        }
        if is_id_alone {
            let missing = || if self.awaits(&key) { Found::Compiling } else { Found::Missing };
            return Ok(self.store.get(key).cloned().map_or_else(missing, Found::Here));
        }
        let (origin, space_was_made) = (named.origin, named.space_was_made);
        let budget = Some(&mut table.budget);
        self.bring(Incoming { key, copied: &mut *named.copied, origin, budget, space_was_made })
            .map(Found::Here)
    }

    /// Brings in code that the policy has admitted, by its id or its family: places an image if the budget allows the
    /// memory, and submits bitcode to the compiler.
    #[inline(always)]
    pub(in crate::executor) fn bring(&mut self, incoming: Incoming<'_>) -> Result<Arc<LinkedImage>, Unbound> {
        let Incoming { key, copied, origin, budget, space_was_made } = incoming;
        self.policy.image(copied.image().len())?;
        if BitcodeView::is_bitcode(copied.image()) {
            return self.bring_bitcode(key, copied, origin);
        }
        let Some(budget) = budget.filter(|budget| budget.is_limited()) else {
            return self.install(key, copied, origin, space_was_made);
        };
        // Code in the store was paid for, or is the target's own.
        let price = if self.store.get(key).is_some() { 0 } else { budget.price(copied.image()) };
        budget.take("its code", price)?;
        match self.install(key, copied, origin, space_was_made) {
            Ok(linked) => {
                budget.holds(Arc::downgrade(&linked), price);
                Ok(linked)
            }
            Err(unbound) => {
                budget.give_back(price);
                Err(unbound)
            }
        }
    }

    /// Finds code that the function `maker` has made, or names by its id; places it if it is not in the store.
    /// `has_waited` is true if an earlier try waited for the compiler, and `space_was_made` as in [`Incoming`].
    #[cold]
    pub(crate) fn find_made(
        &mut self,
        key: CodeKey,
        code: Option<&[u8]>,
        maker: &LinkedImage,
        has_waited: bool,
        space_was_made: bool,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let (name, id) = (maker.name(), key.id);
        let refused = |refusal: Refusal| {
            let text = format!("the code that `{name}` has made: {}", refusal.text);
            Unbound::from(Refusal { text, ..refusal })
        };
        self.policy.code(&id).map_err(refused)?;
        if let Some(linked) = self.store.get(key) {
            return Ok(Arc::clone(linked));
        }
        if self.awaits(&key) {
            return Err(Unbound::Compiling);
        }
        if has_waited && let Some(refusal) = self.refusal_of(&key) {
            return Err(refusal.clone().into());
        }
        let Some(code) = code else {
            let text = format!(
                "`{name}` has sent a message to code {id}, which is not here: make it in the same call"
            );
            return Err(Refusal { cause: RefusalCause::CodeMissing, text }.into());
        };
        // Before the code is copied, and in words that name the maker.
        self.policy.image(code.len()).map_err(refused)?;
        let origin: Arc<str> = format!("`{name}` ({})", maker.id()).into();
        let mut copied = Copied::new(code, name.as_bytes());
        self.bring(Incoming { key, copied: &mut copied, origin: &origin, budget: None, space_was_made })
    }

    /// Checks that a frame was made for this run of the target.
    pub(in crate::executor) fn of_this_epoch(&self, epoch: u64) -> Result<(), Refusal> {
        if epoch == self.epoch {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCause::StaleEpoch,
            "the code index was bound at another target, or before this one restarted: connect again",
        ))
    }

    /// Places an image, whose code id should be that of its key. Checks no policy, and takes from no budget.
    #[inline(always)]
    pub(in crate::executor) fn install(
        &mut self,
        key: CodeKey,
        copied: &mut Copied,
        origin: &Arc<str>,
        space_was_made: bool,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        match self.store.insert_copied(copied, key, self.exports.of(key.domain), Some(origin)) {
            Ok(Inserted::Stored(linked)) => Ok(linked),
            Ok(Inserted::New(linked)) => {
                linked.usage().touch(self.clock.tick());
                self.stats.linked(linked.link_time());
                self.show(&linked);
                Ok(linked)
            }
            Err(why) => Err(unbound(why, copied.image(), space_was_made)),
        }
    }

    /// Announces a placed image to the perf map, to debuggers and to crash reports.
    #[inline]
    pub(in crate::executor) fn show(&self, linked: &LinkedImage) {
        let (address, len) = (linked.block().address(), linked.block().code_len());
        log::debug!("placed `{}` at {address:#x}, {len} bytes, code id {}", linked.name(), linked.id());
        if let Some(map) = &self.perf_map {
            map.add(linked);
        }
        if let Some(symbols) = &self.debug {
            linked.show(symbols.get(&linked.id()));
        }
        if self.crash_report {
            linked.list();
            self.prepare_thread();
        }
    }

    /// Prepares this thread, which calls code, to report a crash of it. Later calls on the same thread cost next to
    /// nothing.
    pub(crate) fn prepare_thread(&self) {
        if self.crash_report {
            crash::prepare_thread();
        }
    }

    /// Allocates memory for the next code of `table`'s source, so that its first call allocates none.
    pub(crate) fn prepare(&mut self, table: &mut CodeTable) {
        self.store.prepare();
        table.reserve_next();
    }

    /// Returns whether the code bound to `index` can run.
    #[inline]
    pub(crate) fn ready(&self, table: &CodeTable, index: u16) -> Result<Ready, Refusal> {
        match table.bindings.get(usize::from(index)) {
            Some(Binding::Linked(..)) => Ok(Ready::Yes),
            Some(Binding::Once(..)) => self.allow(Mode::Cached).map(|()| Ready::Yes),
            Some(Binding::Missing(id, _)) => Ok(Ready::Needs(*id)),
            Some(Binding::Refused(refusal)) => Err(again(refusal)),
            Some(Binding::Nothing) | None => {
                let text = format!("no code is bound to index {index} on this link");
                Err(Refusal::new(RefusalCause::UnknownIndex, text))
            }
        }
    }

    /// Places code that a table waits for, and binds it to every index that misses it. If the code is refused, so are
    /// the calls of those indexes. `space_was_made` is as in [`Incoming`].
    pub(crate) fn supply(
        &mut self,
        table: &mut CodeTable,
        id: CodeId,
        image: &[u8],
        origin: &Arc<str>,
        space_was_made: bool,
    ) -> Supplied {
        // The name that one of these bindings keeps. It is empty if the table had no capacity for it.
        let names = table.bindings.iter().filter_map(|binding| match binding {
            Binding::Missing(missing, name) if *missing == id => Some(name),
            _ => None,
        });
        let Some(name) = names.max_by_key(|name| name.len()) else { return Supplied::Settled };
        let name = if name.is_empty() { id.to_string().into() } else { name.clone() };
        let mut copied = Copied::new(image, name.as_bytes());
        let allowed = self.policy.code(&id).or_else(|refusal| {
            // Code of a family that a frame named was found in its manifest before it was requested.
            self.policy.by_family(id, None, Some(image), refusal).map(drop)
        });
        let key = table.domain().key(id);
        let (copied, budget) = (&mut copied, Some(&mut table.budget));
        let supplied = allowed
            .map_err(Unbound::from)
            .and_then(|()| self.bring(Incoming { key, copied, origin, budget, space_was_made }));
        match supplied {
            Err(Unbound::NoSpace(need)) => return Supplied::Crowded(need),
            Err(Unbound::Compiling) => return Supplied::Compiling,
            Ok(linked) => table.fill(&id, || Binding::Linked(Callable::of(&linked), Arc::clone(&linked))),
            Err(unbound) => table.withhold(&id, &unbound.into()),
        }
        Supplied::Settled
    }

    /// Returns the time spent placing the code bound to `index`: zero if nothing is bound.
    pub(crate) fn link_time(&self, table: &CodeTable, index: u16) -> Duration {
        table.bound(index).map_or(Duration::ZERO, |(_, linked)| linked.link_time())
    }
}

/// The reason why an image is not placed. Where capacity is missing, other code may have to go first, unless it has gone
/// already.
#[cold]
pub(in crate::executor) fn unbound(why: Refused, image: &[u8], space_was_made: bool) -> Unbound {
    match (&why, Need::of(image)) {
        (Refused::StoreFull { .. } | Refused::ArenaFull { .. }, Some(need)) if !space_was_made => {
            Unbound::NoSpace(need)
        }
        _ => Unbound::Refused(why.into()),
    }
}
