//! Bitcode on its way to linked code: jobs of the compiler, and their results.
//!
//! Code that came as bitcode is missing until its first image is here; sessions wait for it as they wait for code of
//! their source. The optimised image replaces the first one between two calls.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farjump_compiler::protocol::Tier;
use farjump_compiler::{Compiled, Compiler, Done, Failed};
use farjump_control::RefusalCause;
use farjump_core::bitcode::BitcodeView;
use farjump_core::image::CodeId;
use farjump_loader::{CodeKey, Compilation, Copied, LinkedImage, Need, code_id};

use crate::executor::Executor;
use crate::executor::code::bind::unbound;
use crate::executor::code::table::{Binding, Callable, CodeTable, Unbound};
use crate::refusal::Refusal;

/// Most refusals kept for bitcode that comes again.
const REFUSALS: usize = 64;

/// The compilation jobs of an executor.
#[derive(Debug, Default)]
pub(in crate::executor) struct BitcodeJobs {
    compiler: Option<Compiler>,
    /// The code that waits for its first image.
    firsts: HashMap<CodeKey, First>,
    /// The code of each job, by the job's number.
    numbers: HashMap<u64, CodeKey>,
    /// The number of the compiler's watched descriptor; 0 if none is watched.
    watched: u64,
    /// The code refused last, for sessions that wait for it.
    refused: VecDeque<Refused>,
}

#[derive(Debug)]
struct Refused {
    key: CodeKey,
    refusal: Refusal,
    /// True if the code is refused without another try when it comes again.
    lasting: bool,
}

#[derive(Debug)]
struct First {
    /// The bitcode and its name.
    copied: Copied,
    origin: Arc<str>,
}

/// The result of a job.
pub(crate) enum Finished {
    /// This code is in the store, or refused: sessions that wait for it may continue.
    Settled(CodeKey),
    /// This code replaces the code with its key.
    Exchanged(Arc<LinkedImage>),
    /// Other code must go first; then finish the job again.
    Crowded(Need, Box<Done>),
    /// Nothing more.
    Nothing,
}

/// The state of code for which a session waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// The compiler is still at work on it.
    Waits,
    /// The code is bound or refused, or the session must request it again.
    Decided,
}

impl BitcodeJobs {
    pub(in crate::executor) fn new(compiler: Option<Compiler>) -> BitcodeJobs {
        BitcodeJobs { compiler, ..BitcodeJobs::default() }
    }

    fn refuse(&mut self, key: CodeKey, refusal: Refusal, lasting: bool) {
        self.refused.retain(|refused| refused.key != key);
        if self.refused.len() == REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused { key, refusal, lasting });
    }

    fn refusal(&self, key: &CodeKey) -> Option<&Refused> {
        self.refused.iter().find(|refused| refused.key == *key)
    }
}

impl Executor {
    /// Returns whether jobs are under way.
    #[inline]
    pub(crate) fn is_compiling(&self) -> bool {
        !self.bitcode.numbers.is_empty()
    }

    /// Returns whether this code waits for its first image.
    pub(in crate::executor) fn awaits(&self, key: &CodeKey) -> bool {
        self.bitcode.firsts.contains_key(key)
    }

    /// Returns the last refusal of this code, if it was bitcode.
    pub(in crate::executor) fn refusal_of(&self, key: &CodeKey) -> Option<&Refusal> {
        self.bitcode.refusal(key).map(|refused| &refused.refusal)
    }

    /// Passes the compiler's descriptor to `watch`, unless it is the one that was watched last.
    pub(crate) fn watch_compiler<E>(
        &mut self,
        watch: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let BitcodeJobs { compiler, watched, .. } = &mut *self.bitcode;
        let descriptor = compiler.as_ref().and_then(Compiler::descriptor);
        if let Some((fd, number)) = descriptor.filter(|(_, number)| number != watched) {
            watch(fd)?;
            *watched = number;
        }
        Ok(())
    }

    /// Takes bitcode that a source brought. Returns its code if the store has it; otherwise submits a job to the
    /// compiler.
    #[cold]
    pub(in crate::executor) fn bring_bitcode(
        &mut self,
        key: CodeKey,
        copied: &Copied,
        origin: &Arc<str>,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let (bitcode, id) = (copied.image(), key.id);
        if let Some(linked) = self.store.get(key).filter(|linked| linked.image() == bitcode) {
            return Ok(Arc::clone(linked));
        }
        let name = String::from_utf8_lossy(copied.name()).into_owned();
        let found = code_id(bitcode);
        let refused =
            |cause, text: String| Refusal { cause, text: format!("the target refused `{name}`: {text}") };
        if found != id {
            let text = format!(
                "its code is {found}, but came as {id}; it was damaged on the way or changed while it was read"
            );
            return Err(refused(RefusalCause::IdMismatch, text).into());
        }
        if let Some(before) = self.bitcode.refusal(&key).filter(|refused| refused.lasting) {
            return Err(before.refusal.clone().into());
        }
        if self.bitcode.firsts.contains_key(&key) {
            return Err(Unbound::Compiling);
        }
        let view = BitcodeView::new_checked(bitcode)
            .map_err(|error| refused(RefusalCause::BadImage, error.to_string()))?;
        let cpu = Arc::clone(self.store.cpu());
        if view.machine() != cpu.machine() {
            let text =
                format!("it is bitcode for {}, and the target runs on {}", view.machine(), cpu.machine());
            return Err(refused(RefusalCause::WrongMachine, text).into());
        }
        let Some(compiler) = &mut self.bitcode.compiler else {
            let text = "it is bitcode, which this target does not take: send an image, or have it take bitcode (TargetBuilder::bitcode)";
            return Err(refused(RefusalCause::WrongMachine, text.to_owned()).into());
        };
        match compiler.submit(Tier::First, id, &cpu, bitcode) {
            Ok(number) => {
                self.bitcode.numbers.insert(number, key);
                let copied = Copied::new(copied.image(), copied.name());
                self.bitcode.firsts.insert(key, First { copied, origin: Arc::clone(origin) });
                Err(Unbound::Compiling)
            }
            Err(why) => Err(refused(RefusalCause::BadImage, why).into()),
        }
    }

    /// Takes the results of jobs that have ended, each for [`Executor::finish`].
    pub(crate) fn take_compiled(&mut self) -> Vec<Done> {
        self.bitcode.compiler.as_mut().map_or_else(Vec::new, Compiler::poll)
    }

    /// Links the result of a job. With `space_was_made`, other code was dropped for an earlier attempt.
    #[cold]
    pub(crate) fn finish(&mut self, done: Done, space_was_made: bool) -> Finished {
        let Some(key) = self.bitcode.numbers.get(&done.number).copied() else {
            return Finished::Nothing;
        };
        let finished = match self.bitcode.firsts.remove(&key) {
            Some(first) => self.finish_first(key, first, done, space_was_made),
            None => self.finish_optimised(key, done, space_was_made),
        };
        if let Finished::Crowded(_, done) = &finished {
            log::debug!("code {} waits for capacity, job {}", key.id, done.number);
        }
        finished
    }

    fn finish_first(&mut self, key: CodeKey, mut first: First, done: Done, space_was_made: bool) -> Finished {
        let name = String::from_utf8_lossy(first.copied.name()).into_owned();
        let (len, number) = (first.copied.image().len(), done.number);
        let (refusal, lasting) = match &done.result {
            Ok(compiled) => {
                match self.link_compiled(key, &mut first.copied, compiled, &first.origin, space_was_made) {
                    Ok(linked) => {
                        self.bitcode.numbers.remove(&number);
                        self.stats.linked(linked.link_time());
                        self.announce(&linked);
                        if !compiled.optimised {
                            self.optimise(&linked);
                        }
                        return Finished::Settled(key);
                    }
                    Err(Unbound::NoSpace(_)) => {
                        self.bitcode.firsts.insert(key, first);
                        let need = Need::of_compiled(len, &compiled.image);
                        return need
                            .map_or(Finished::Nothing, |need| Finished::Crowded(need, Box::new(done)));
                    }
                    // Exports and capacity may differ at the next try.
                    Err(unbound) => (unbound.into(), false),
                }
            }
            Err(Failed { fault, text }) => {
                let text = format!("the target refused `{name}`, whose bitcode it could not compile: {text}");
                (Refusal { cause: RefusalCause::BadImage, text }, fault.is_lasting())
            }
        };
        self.bitcode.numbers.remove(&number);
        log::info!("bitcode {}: {refusal}", key.id);
        self.bitcode.refuse(key, refusal, lasting);
        Finished::Settled(key)
    }

    fn finish_optimised(&mut self, key: CodeKey, done: Done, space_was_made: bool) -> Finished {
        let (number, id) = (done.number, key.id);
        // The code may have been dropped, or have come again, meanwhile.
        let held = self.store.get(key).filter(|held| held.compilation().is_some_and(|made| !made.optimised));
        let (Some(held), Ok(compiled)) = (held.cloned(), &done.result) else {
            self.bitcode.numbers.remove(&number);
            if let Err(why) = &done.result {
                log::warn!("code {id} stays as it is, and is not optimised: {}", why.text);
            }
            return Finished::Nothing;
        };
        let mut copied = Copied::new(held.image(), held.name().as_bytes());
        let origin: Arc<str> = held.origin().into();
        let exchanged = match self.link_compiled(key, &mut copied, compiled, &origin, space_was_made) {
            Ok(linked) => {
                self.announce(&linked);
                Finished::Exchanged(linked)
            }
            Err(Unbound::NoSpace(need)) => {
                let need = Need::of_compiled(held.image().len(), &compiled.image).unwrap_or(need);
                return Finished::Crowded(need, Box::new(done));
            }
            Err(unbound) => {
                log::warn!("code {id} stays as it is, and is not optimised: {}", Refusal::from(unbound));
                Finished::Nothing
            }
        };
        self.bitcode.numbers.remove(&number);
        exchanged
    }

    fn link_compiled(
        &mut self,
        key: CodeKey,
        copied: &mut Copied,
        compiled: &Compiled,
        origin: &Arc<str>,
        space_was_made: bool,
    ) -> Result<Arc<LinkedImage>, Unbound> {
        let compilation = Compilation {
            optimised: compiled.optimised,
            image_len: compiled.image.len(),
            time: compiled.times.total(),
        };
        log::debug!(
            "compiled bitcode {} to {} bytes, {compilation}{}: {:?}",
            code_id(copied.image()),
            compiled.image.len(),
            if compiled.kept { ", kept from before" } else { "" },
            compiled.times
        );
        let (store, resolver) = (&mut self.store, self.exports.of(key.domain));
        let linked =
            store.insert_compiled(copied, &compiled.image, compilation, key.domain, resolver, Some(origin));
        linked.map_err(|why| unbound(why, &compiled.image, space_was_made))
    }

    fn announce(&self, linked: &LinkedImage) {
        linked.usage().touch(linked.usage().last().max(self.clock.now()));
        self.show(linked);
    }

    /// Submits the job for the optimised image of code that has its first image.
    fn optimise(&mut self, linked: &LinkedImage) {
        let cpu = Arc::clone(self.store.cpu());
        let Some(compiler) = &mut self.bitcode.compiler else { return };
        match compiler.submit(Tier::Optimised, linked.id(), &cpu, linked.image()) {
            Ok(number) => drop(self.bitcode.numbers.insert(number, linked.key())),
            Err(why) => log::warn!("code {} stays as it is, and is not optimised: {why}", linked.id()),
        }
    }

    /// Binds code that a table waits for, if its job has ended. If the code is refused, so are the calls of its
    /// indexes.
    pub(crate) fn settle(&mut self, table: &mut CodeTable, id: &CodeId) -> Settled {
        let key = table.domain().key(*id);
        if self.bitcode.firsts.contains_key(&key) {
            return Settled::Waits;
        }
        if let Some(linked) = self.store.get(key).cloned() {
            let price = match table.budget.is_limited() {
                true => linked.image().len() + linked.compilation().map_or(0, |made| made.image_len),
                false => 0,
            };
            match table.budget.take("its code", price) {
                Ok(()) => {
                    table.budget.holds(Arc::downgrade(&linked), price);
                    table.fill(id, || Binding::Linked(Callable::of(&linked), Arc::clone(&linked)));
                }
                Err(refusal) => table.withhold(id, &refusal),
            }
        } else if let Some(refused) = self.bitcode.refusal(&key) {
            table.withhold(id, &refused.refusal);
        }
        Settled::Decided
    }
}
