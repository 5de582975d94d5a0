//! Listings of objects, in pages.

use farjump::objects::{ObjectListing, ObjectPage, ObjectState, StoredObject};

use super::{State, Table};

impl Table {
    /// Lists at most `most` objects, those of the latest use first, whose last use came before the number `from`. The
    /// next page begins with the returned number, if there is one.
    pub(crate) fn list(&mut self, from: u64, most: usize) -> ObjectPage {
        self.end_quarantine();
        self.end_some();
        let now = self.turn.now();
        let page = most.min(self.turn.left() as usize);
        let mut of_use = self.by_use.range(..from).rev();
        let shown: Vec<_> =
            of_use.by_ref().take(page).map(|(last_use, number)| (*last_use, *number)).collect();
        let next = shown.last().filter(|_| of_use.next().is_some()).map(|(last_use, _)| *last_use);
        self.turn.visit(shown.len() as u32);
        let described = shown.iter().filter_map(|(_, number)| {
            let object = self.objects.get(number)?;
            Some(StoredObject {
                number: *number,
                len: object.len,
                type_name: object.type_name.to_string(),
                claims: object.claims,
                references: object.references.unwrap_or(0),
                lease_ns: object.lease.map(|until| {
                    u64::try_from(until.saturating_duration_since(now).as_nanos()).unwrap_or(u64::MAX)
                }),
                state: match object.state {
                    State::Reserved => ObjectState::Reserved,
                    State::Unfinished(_) => ObjectState::Unfinished,
                    State::Present if object.place.is_some() => ObjectState::Spilled,
                    State::Present => ObjectState::Present,
                    State::Evicted => ObjectState::Evicted,
                },
            })
        });
        let listing = ObjectListing {
            objects: described.collect(),
            left_out: (self.objects.len() - shown.len()) as u64,
            used: self.used(),
            capacity: self.memory.capacity(),
            quarantined: self.quarantine.bytes(),
            keepers: self.quarantine.keepers(most),
        };
        ObjectPage { listing, next }
    }
}
