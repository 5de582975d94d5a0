//! The objects of a target in the report of `farjump store`.

use std::time::Duration;

use farjump::admin::{Admin, ObjectListing, ObjectState, StoredObject};
use farjump::{ConnectError, Error};
use farjump_control::{HandshakeError, RejectCause};
use serde_json::{Value, json};

use farjump_benches::program::failure::Failure;
use farjump_benches::program::output;
use farjump_benches::program::units::{counted, microseconds, show_count, show_duration};

/// Lists the objects of a target; `None` if it has no store of objects.
pub(crate) fn of(admin: &Admin) -> Result<Option<ObjectListing>, Failure> {
    match admin.objects() {
        // The right to ask is the same as for the code, which was listed before.
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
    let all = listing.objects.len() as u64 + listing.left_out;
    let (used, capacity) = (show_count(listing.used), show_count(listing.capacity));
    text + &format!("{} in {used} B of {capacity} B\n", counted(all, "object"))
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

/// A name of a type for a terminal, which any process may have chosen.
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

    #[test]
    fn people_see_what_programs_do_and_no_escape_sequences() {
        let objects = vec![object(ObjectState::Present), object(ObjectState::Evicted)];
        let listing = ObjectListing { objects, left_out: 3, used: 8192, capacity: 1 << 20 };
        let text = as_text(&listing);
        assert_eq!(
            text,
            "object  bytes  type     claims  references  lease  state\n\
             7       4 096  f32?[2J  1       -           1.5 s  present\n\
             7       4 096  f32?[2J  1       -           1.5 s  evicted\n\
             and 3 that were used longer ago\n\
             5 objects in 8 192 B of 1 048 576 B\n"
        );
    }
}
