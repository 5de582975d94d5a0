//! Marks on the first and the last units of free blocks, by which a freed block finds its free neighbours.

/// Units of a page of marks.
const UNITS: u64 = 1024;
/// No mark.
const NONE: u32 = 0;

/// Marks of units. A mark is a number.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Pages that have marks.
    pages: Vec<Option<Box<Page>>>,
    /// Number of pages that have marks.
    used: usize,
    /// A page without marks, for the next use.
    spare: Option<Box<Page>>,
}

#[derive(Debug)]
struct Page {
    /// The marked numbers, each plus one, or [`NONE`].
    marks: [u32; UNITS as usize],
    count: u32,
}

impl Marks {
    /// Returns the bytes of the heap that the marks take.
    pub(super) fn heap(&self) -> u64 {
        let pages = self.used + usize::from(self.spare.is_some());
        (pages * size_of::<Page>() + self.pages.capacity() * size_of::<Option<Box<Page>>>()) as u64
    }

    /// Returns the mark of a unit.
    pub(super) fn get(&self, unit: u64) -> Option<u32> {
        self.pages.get((unit / UNITS) as usize)?.as_ref()?.marks[(unit % UNITS) as usize].checked_sub(1)
    }

    /// Marks a unit. The number is less than `u32::MAX`.
    pub(super) fn set(&mut self, unit: u64, number: u32) {
        let page = (unit / UNITS) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| {
            self.used += 1;
            self.spare.take().unwrap_or_else(|| Box::new(Page { marks: [NONE; UNITS as usize], count: 0 }))
        });
        let mark = &mut page.marks[(unit % UNITS) as usize];
        page.count += u32::from(*mark == NONE);
        *mark = number + 1;
    }

    /// Removes the mark of a unit.
    pub(super) fn clear(&mut self, unit: u64) {
        let Some(place) = self.pages.get_mut((unit / UNITS) as usize) else { return };
        let Some(page) = place else { return };
        let mark = &mut page.marks[(unit % UNITS) as usize];
        page.count -= u32::from(*mark != NONE);
        *mark = NONE;
        if page.count == 0 {
            self.used -= 1;
            self.spare = place.take();
        }
    }
}
