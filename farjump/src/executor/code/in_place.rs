//! Code that runs in place, as the executor knows it: the checked code of each source.

use std::ptr::NonNull;

use farjump_control::RefusalCause;
use farjump_core::channel::InPlace as Place;
use farjump_core::frame::INLINE_ALIGN_LOG2;
use farjump_core::image::CodeId;
use farjump_loader::{InPlace, Usage};

use crate::Refusal;
use crate::executor::{Callable, CodeTable, Executor, Named};
use crate::mode::Mode;

/// Most bytes kept of one source's code: tens of thousands of functions with a few imports each, and more
/// than one image can take. Excess code costs only time: it is checked again when it comes again.
const LIMIT: usize = 4 << 20;

/// The code of one source that was checked to run in place, by index.
#[derive(Debug, Default)]
pub(in crate::executor) struct Checked {
    codes: Vec<Option<Box<InPlace>>>,
    /// Bytes that the code takes, without the list itself.
    bytes: usize,
}

impl Checked {
    fn get(&self, index: u16) -> Option<&InPlace> {
        self.codes.get(usize::from(index))?.as_deref()
    }

    /// Keeps `code`. If that exceeds the limit, it drops all else.
    fn put(&mut self, index: u16, code: InPlace) {
        let index = usize::from(index);
        if self.bytes + code.footprint() > LIMIT {
            *self = Checked::default();
        }
        if self.codes.len() <= index {
            self.codes.resize_with(index + 1, || None);
        }
        self.bytes += code.footprint();
        if let Some(before) = self.codes[index].replace(Box::new(code)) {
            self.bytes -= before.footprint();
        }
    }

    pub(in crate::executor) fn drop_code(&mut self, id: &CodeId) {
        for slot in &mut self.codes {
            if let Some(code) = slot.take_if(|code| code.id() == *id) {
                self.bytes -= code.footprint();
            }
        }
    }
}

impl CodeTable {
    /// Returns whether the image of `len` bytes with this index and id was checked already.
    pub(crate) fn is_checked(&self, index: u16, id: &CodeId, len: usize) -> bool {
        self.in_place.get(index).is_some_and(|code| code.id() == *id && code.image_len() == len)
    }

    /// Makes the image at `place`, of code that was checked at `index`, ready to be called. Until
    /// [`CodeTable::over`] a crash report names it. Its calls are counted in `usage`, which is the executor's
    /// ([`Executor::in_place_usage`]).
    ///
    /// # Safety
    /// `place` must be of a frame that is held until the call is over.
    pub(crate) unsafe fn prepare(
        &self,
        index: u16,
        place: &Place,
        usage: NonNull<Usage>,
    ) -> Result<Callable, Refusal> {
        let code =
            self.in_place.get(index).filter(|code| code.image_len() == place.len).ok_or_else(|| {
                Refusal::new(RefusalCause::UnknownIndex, format_args!("no code of index {index} was checked"))
            })?;
        // SAFETY: `place` is as long as the image and can be written and executed, as the channel guarantees;
        // it is this thread's while the frame is held.
        let main = unsafe { code.prepare(place.image, place.address) }?;
        Ok(Callable { main, usage, align: 1 << code.payload_align_log2().max(INLINE_ALIGN_LOG2) })
    }

    /// Ends the prepared call of code at `index`.
    pub(crate) fn over(&self, index: u16) {
        if let Some(code) = self.in_place.get(index) {
            code.over();
        }
    }
}

impl Executor {
    /// Checks that a frame made for `epoch` may run its code in place.
    pub(crate) fn allow_in_place(&self, epoch: u64) -> Result<(), Refusal> {
        self.allow(Mode::InPlace)?;
        self.of_this_epoch(epoch)
    }

    /// Counters of code that runs in place.
    pub(crate) fn in_place_usage(&self) -> NonNull<Usage> {
        NonNull::from(&*self.in_place)
    }

    /// Checks code that is to run in place at `index`. The code stays in its frames: nothing is placed.
    pub(crate) fn check_in_place(
        &mut self,
        table: &mut CodeTable,
        index: u16,
        named: &Named<'_>,
    ) -> Result<(), Refusal> {
        let image = named.copied.image();
        self.policy.image(image.len())?;
        let name = String::from_utf8_lossy(named.copied.name());
        let exports = self.exports.of(table.domain());
        let code = InPlace::new(image, named.id, &name, exports, self.store.cpu(), self.crash_report)?;
        log::debug!("`{name}` runs in place, code id {}", named.id);
        self.prepare_thread();
        table.in_place.put(index, code);
        Ok(())
    }
}
