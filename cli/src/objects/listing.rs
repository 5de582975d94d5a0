//! The objects of a target in the reports of `farjump store` and `farjump stats`.

use std::time::Duration;

use farjump::admin::{Admin, MemoryKeeper, ObjectListing, ObjectState, StoredObject};
use farjump::{ConnectError, Error};
use farjump_control::{HandshakeError, RejectCause};
use serde_json::{Value, json};

use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::units::{counted, microseconds, show_count, show_duration};

/// Lists the objects of a target; `None` if it has no store of objects.
pub(crate) fn of(admin: &Admin) -> Result<Option<ObjectListing>, Failure> {
    match admin.objects() {
        // This request needs the same right as those for the code and the statistics, which succeeded before.
        Err(Error::Connect(ConnectError::Handshake(HandshakeError::Refused {
            cause: RejectCause::Failed,
            ..
        }))) => Ok(None),
        listed => Ok(Some(listed?)),
    }
}

pub(crate) fn as_text(listing: &ObjectListing) -> String {
    let mut rows =
        vec![["object", "bytes", "type", "claims", "references", "lease", "state"].map(String::from)];
    rows.extend(listing.objects.iter().map(as_row));
    let mut text = output::table(&rows);
    if listing.left_out != 0 {
        text += &format!("and {} that were used longer ago\n", show_count(listing.left_out));
    }
    text + &summary(listing) + "\n"
}

/// Returns a line about the store. Claims and spilled objects are counted among the listed ones.
pub(crate) fn summary(listing: &ObjectListing) -> String {
    let (used, capacity) = (show_count(listing.used), show_count(listing.capacity));
    let among = match listing.left_out {
        0 => String::new(),
        _ => format!(" among the {} used last", show_count(listing.objects.len() as u64)),
    };
    format!(
        "{} in {used} B of {capacity} B; {}, {} spilled{among}{}",
        counted(count(listing), "object"),
        counted(claims(listing), "claim"),
        show_count(spilled(listing)),
        quarantine(listing)
    )
}

/// Returns the part of a summary about memory of ended links, if there is some.
fn quarantine(listing: &ObjectListing) -> String {
    const NAMED: usize = 3;
    if listing.quarantined == 0 {
        return String::new();
    }
    let keeper = |keeper: &MemoryKeeper| match keeper.pid {
        0 => format!("{} (in another PID namespace)", plain(&keeper.program)),
        pid => format!("{} (pid {pid})", plain(&keeper.program)),
    };
    let named = listing.keepers.iter().take(NAMED).map(keeper).collect::<Vec<_>>().join(", ");
    let more = match listing.keepers.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let whom = if named.is_empty() { named } else { format!(" for {named}{more}") };
    format!("; {} B in quarantine{whom}", show_count(listing.quarantined))
}

pub(crate) fn summary_as_json(listing: &ObjectListing) -> Value {
    json!({
        "count": count(listing),
        "used_bytes": listing.used,
        "capacity_bytes": listing.capacity,
        "claims": claims(listing),
        "spilled": spilled(listing),
        "left_out": listing.left_out,
        "quarantined_bytes": listing.quarantined,
        "keepers": keepers_as_json(listing),
    })
}

fn keepers_as_json(listing: &ObjectListing) -> Value {
    let keeper = |keeper: &MemoryKeeper| json!({ "program": keeper.program, "pid": keeper.pid, "bytes": keeper.bytes });
    listing.keepers.iter().map(keeper).collect()
}

fn count(listing: &ObjectListing) -> u64 {
    listing.left_out.saturating_add(listing.objects.len() as u64)
}

/// Returns the claims of the listed objects. A target may say anything, so sums are saturated.
fn claims(listing: &ObjectListing) -> u64 {
    listing.objects.iter().fold(0, |sum, object| sum.saturating_add(object.claims))
}

fn spilled(listing: &ObjectListing) -> u64 {
    listing.objects.iter().filter(|object| object.state == ObjectState::Spilled).count() as u64
}

fn as_row(object: &StoredObject) -> [String; 7] {
    [
        object.number.to_string(),
        show_count(object.len),
        plain(&object.type_name),
        show_count(object.claims),
        match object.references {
            0 => "-".to_owned(),
            references => show_count(references),
        },
        lease(object).map_or_else(|| "-".to_owned(), show_duration),
        word(object.state).to_owned(),
    ]
}

pub(crate) fn as_json(listing: &ObjectListing) -> Value {
    let listed: Vec<_> = listing.objects.iter().map(object_as_json).collect();
    json!({
        "listed": listed,
        "left_out": listing.left_out,
        "used_bytes": listing.used,
        "capacity_bytes": listing.capacity,
        "quarantined_bytes": listing.quarantined,
        "keepers": keepers_as_json(listing),
    })
}

fn object_as_json(object: &StoredObject) -> Value {
    json!({
        "number": object.number,
        "bytes": object.len,
        "type": object.type_name,
        "claims": object.claims,
        "references": object.references,
        "lease_us": lease(object).map(microseconds),
        "state": word(object.state),
    })
}

fn lease(object: &StoredObject) -> Option<Duration> {
    object.lease_ns.map(Duration::from_nanos)
}

fn word(state: ObjectState) -> &'static str {
    match state {
        ObjectState::Reserved => "reserved",
        ObjectState::Unfinished => "unfinished",
        ObjectState::Present => "present",
        ObjectState::Spilled => "spilled",
        ObjectState::Evicted => "evicted",
    }
}

/// Returns the name of a type in a form for terminals, because any process may have chosen it.
fn plain(name: &str) -> String {
    match name {
        "" => "-".to_owned(),
        name => name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(state: ObjectState) -> StoredObject {
        StoredObject {
            number: 7,
            len: 4096,
            type_name: "f32\x1b[2J".to_owned(),
            claims: 1,
            references: 0,
            lease_ns: Some(1_500_000_000),
            state,
        }
    }

    fn keeper(pid: u32) -> MemoryKeeper {
        MemoryKeeper { program: "\u{1b}r".to_owned(), pid, bytes: 4096 }
    }

    #[test]
    fn people_see_what_programs_do_and_no_escape_sequences() {
        let objects = vec![object(ObjectState::Present), object(ObjectState::Evicted)];
        let keepers = (0..5).map(keeper).collect();
        let listing = ObjectListing {
            objects,
            left_out: 3,
            used: 8192,
            capacity: 1 << 20,
            quarantined: 20480,
            keepers,
        };
        let text = as_text(&listing);
        assert_eq!(
            text,
            "object  bytes  type     claims  references  lease  state\n\
             7       4 096  f32?[2J  1       -           1.5 s  present\n\
             7       4 096  f32?[2J  1       -           1.5 s  evicted\n\
             and 3 that were used longer ago\n\
             5 objects in 8 192 B of 1 048 576 B; 2 claims, 0 spilled among the 2 used last; 20 480 B in quarantine for \
             ?r (in another PID namespace), ?r (pid 1), ?r (pid 2) and 2 more\n"
        );
        let quarantined = &as_json(&listing)["keepers"][1];
        assert_eq!((&quarantined["pid"], &quarantined["bytes"]), (&1.into(), &4096.into()));
    }

    #[test]
    fn a_summary_counts_what_is_listed_and_overflows_at_nothing() {
        let objects = vec![object(ObjectState::Present), object(ObjectState::Spilled)];
        let mut listing =
            ObjectListing { objects, used: 4096, capacity: 1 << 20, ..ObjectListing::default() };
        assert_eq!(summary(&listing), "2 objects in 4 096 B of 1 048 576 B; 2 claims, 1 spilled");
        listing.objects[0].claims = u64::MAX;
        listing.left_out = u64::MAX;
        let summed = summary_as_json(&listing);
        assert_eq!((&summed["claims"], &summed["count"]), (&u64::MAX.into(), &u64::MAX.into()));
        assert_eq!((&summed["spilled"], &summed["quarantined_bytes"]), (&1.into(), &0.into()));
        // A target may list none of the processes.
        listing.quarantined = u64::MAX;
        assert_eq!(summary_as_json(&listing)["quarantined_bytes"], u64::MAX);
        assert!(summary(&listing).ends_with(" B in quarantine"), "{}", summary(&listing));
    }
}
