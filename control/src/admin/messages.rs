//! Admin requests to a running target, and its responses. Times are in nanoseconds, lengths in bytes.

use std::time::Duration;

use farjump_core::cpu::Cpu;
use farjump_core::image::{CodeId, FamilyId};
use serde::{Deserialize, Serialize};

use crate::admin::objects::ObjectListing;
use crate::refusal::RefusalCause;
use crate::rights::Rights;

/// Limit of images, and of sources, listed in one response. It stays within
/// [`MAX_MESSAGE`](crate::MAX_MESSAGE), however long their names are.
pub const MAX_LISTED: usize = 65_536;

/// An admin request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Lists the stored code: [`AdminResponse::Store`].
    Store,
    /// Drops the code with this id: [`AdminResponse::Dropped`].
    Drop {
        /// The code id.
        id: [u8; 16],
    },
    /// Drops all code: [`AdminResponse::Dropped`].
    DropAll,
    /// Requests the statistics: [`AdminResponse::Stats`].
    Stats,
    /// Adds the definitions of a shared library ahead of all exports so far: [`AdminResponse::Exported`].
    /// Exceeds the message limit at targets where the process lacks [`Rights::EXPORT`].
    Export {
        /// Name of the library, for display.
        name: String,
        /// The library's file, at most [`MAX_CODE`](crate::MAX_CODE) bytes.
        #[serde(with = "serde_bytes")]
        library: Vec<u8>,
    },
    /// Lists the objects of the target's store: [`AdminResponse::Objects`].
    Objects,
    /// Requests the memory of that store, to map it: [`AdminResponse::Region`], with a descriptor beside it.
    Region,
}

impl AdminRequest {
    /// Returns its kind, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            AdminRequest::Store => "the stored images",
            AdminRequest::Drop { .. } => "dropping an image",
            AdminRequest::DropAll => "dropping all images",
            AdminRequest::Stats => "statistics",
            AdminRequest::Export { .. } => "loading a library",
            AdminRequest::Objects => "the objects",
            AdminRequest::Region => "the memory of the objects",
        }
    }

    /// Returns the right that it requires.
    pub fn needs(&self) -> Rights {
        match self {
            AdminRequest::Store | AdminRequest::Stats | AdminRequest::Objects => Rights::OBSERVE,
            AdminRequest::Region => Rights::CALL,
            AdminRequest::Drop { .. } | AdminRequest::DropAll => Rights::DROP,
            AdminRequest::Export { .. } => Rights::EXPORT,
        }
    }
}

/// The response to a [`AdminRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it is soon written or read")]
pub enum AdminResponse {
    /// The stored code.
    Store(StoreListing),
    /// The result of a drop.
    Dropped(Dropped),
    /// The statistics.
    Stats(TargetStats),
    /// The library was loaded.
    Exported {
        /// The names that it replaces, in alphabetical order; at most [`MAX_LISTED`], and as many as fit the
        /// response.
        replaced: Vec<String>,
    },
    /// The objects of the store.
    Objects(ObjectListing),
    /// The store's memory, whose descriptor travels beside the message.
    Region {
        /// Its length in bytes.
        len: u64,
        /// Whether the requester may write there.
        may_write: bool,
        /// The store's epoch.
        epoch: u64,
    },
}

impl AdminResponse {
    /// Returns its name, for error texts.
    pub fn name(&self) -> &'static str {
        match self {
            AdminResponse::Store(_) => "a list of stored images",
            AdminResponse::Dropped(_) => "a number of dropped images",
            AdminResponse::Stats(_) => "statistics",
            AdminResponse::Exported { .. } => "a list of replaced exports",
            AdminResponse::Objects(_) => "a list of objects",
            AdminResponse::Region { .. } => "the memory of objects",
        }
    }
}

/// The code in a target's store.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StoreListing {
    /// Stored images, the most recently used first; at most [`MAX_LISTED`].
    pub images: Vec<StoredImage>,
    /// Number of stored images not listed, which were used longer ago.
    pub left_out: u64,
}

/// One image in a target's store. On the wire its times are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredImage {
    /// Its code id.
    #[serde(with = "code_id")]
    pub id: CodeId,
    /// The name under which it first came.
    pub name: String,
    /// Length of the image in bytes.
    pub bytes: usize,
    /// Time taken to place it.
    #[serde(with = "nanoseconds")]
    pub link_time: Duration,
    /// Calls of it.
    pub calls: u64,
    /// Total time of these calls. An estimate: only some of the short calls are timed.
    #[serde(with = "nanoseconds")]
    pub time: Duration,
    /// Time since its last call; since it came, if it was never called.
    #[serde(with = "nanoseconds")]
    pub last_use: Duration,
    /// The program that brought it first, and its process id; text for people.
    pub source: String,
    /// True if it is a function of the target's own, which is never dropped on request.
    pub own: bool,
    /// The platform that it was linked for: target triple, and CPU level behind a colon if it is not the baseline.
    pub platform: String,
    /// Its family, as its source named it; zero for code that was compiled for one CPU.
    #[serde(with = "family_id")]
    pub family: FamilyId,
}

impl StoredImage {
    /// Makes an image of this id and length that came as `name` from `source`, and was not used since.
    /// Platform and family are left empty.
    pub fn new(id: CodeId, name: impl Into<String>, bytes: usize, source: impl Into<String>) -> StoredImage {
        StoredImage {
            id,
            name: name.into(),
            bytes,
            link_time: Duration::ZERO,
            calls: 0,
            time: Duration::ZERO,
            last_use: Duration::ZERO,
            source: source.into(),
            own: false,
            platform: String::new(),
            family: FamilyId([0; 16]),
        }
    }
}

/// A family id as its bytes.
mod family_id {
    use farjump_core::image::FamilyId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &FamilyId, serializer: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(decoder: D) -> Result<FamilyId, D::Error> {
        Deserialize::deserialize(decoder).map(FamilyId)
    }
}

/// A code id as its bytes.
mod code_id {
    use farjump_core::image::CodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &CodeId, serializer: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(decoder: D) -> Result<CodeId, D::Error> {
        Deserialize::deserialize(decoder).map(CodeId)
    }
}

/// A CPU as the bytes of its encoding.
mod cpu {
    use farjump_core::cpu::Cpu;
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(cpu: &Cpu, serializer: S) -> Result<S::Ok, S::Error> {
        serde_bytes::serialize(&cpu.encode(), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(decoder: D) -> Result<Cpu, D::Error> {
        let bytes: Vec<u8> = serde_bytes::deserialize(decoder)?;
        Cpu::decode(&bytes).map_err(D::Error::custom)
    }
}

/// A duration in whole nanoseconds, in 64 bits.
mod nanoseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(decoder: D) -> Result<Duration, D::Error> {
        Deserialize::deserialize(decoder).map(Duration::from_nanos)
    }
}

/// The result of a request to drop code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// Images dropped.
    pub images: u64,
    /// Selected images that stayed: functions of the target's own.
    pub kept: u64,
}

/// Counters of a target since it was built, and its present state.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TargetStats {
    /// Name of the program.
    pub program: String,
    /// Its process id, as it sees itself.
    pub pid: u32,
    /// Its epoch: a new one each time a target is built. Counters start at zero with it.
    pub epoch: u64,
    /// Connected sources.
    pub links: u64,
    /// Links made.
    pub links_made: u64,
    /// Links that ended.
    pub links_ended: u64,
    /// Processes rejected because the target had its limit of sources.
    pub sources_refused: u64,
    /// Frames received: calls, refused or not, and flushes.
    pub frames: u64,
    /// Bytes of their mailboxes that they took: headers, code, payload, and unused bytes between them.
    pub bytes: u64,
    /// Calls made.
    pub calls: u64,
    /// Calls among them that were forwarded to a destination.
    pub forwarded: u64,
    /// Images placed.
    pub images_linked: u64,
    /// Time spent placing images.
    pub link_ns: u64,
    /// Frames refused, by [`RefusalCause::index`]. [`TargetStats::refusals`] names them.
    pub refused: Vec<u64>,
    /// The code store.
    pub store: StoreStats,
    /// The connected sources, the longest connected first; at most [`MAX_LISTED`].
    pub sources: Vec<SourceStats>,
    /// True if UCX's TCP is on. Then a process that reaches a port of UCX may write the target's memory.
    pub ucx_tcp: bool,
    /// The way in which UCX's ports are closed once a source is connected: by a `filter`, or by binding them
    /// to no `device`. `None` if UCX's TCP is off, or refused because neither works.
    pub ucx_ports_closed_by: Option<String>,
    /// The CPU that the target claims to have.
    #[serde(with = "cpu")]
    pub cpu: Cpu,
}

impl TargetStats {
    /// Returns the number of refused frames by cause, including causes that never occurred.
    pub fn refusals(&self) -> impl Iterator<Item = (RefusalCause, u64)> {
        RefusalCause::ALL.into_iter().zip(self.refused.iter().copied())
    }
}

/// A target's code store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StoreStats {
    /// Stored images.
    pub images: u64,
    /// Their total length on the wire.
    pub bytes: u64,
    /// Limit of stored images; `None` if there is none.
    pub capacity_images: Option<u64>,
    /// Limit of bytes of stored images; `None` if there is none.
    pub capacity_bytes: Option<u64>,
    /// Images dropped to make space for others.
    pub evictions: u64,
    /// Used capacity for placed code.
    pub arena_used: u64,
    /// Capacity for placed code.
    pub arena_capacity: u64,
}

/// A connected source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceStats {
    /// Name of the program, from the source.
    pub program: String,
    /// Its process id, from the system; 0 where it has none here.
    pub pid: u32,
    /// Bytes that its frames took of its mailbox, on this link.
    pub bytes: u64,
    /// Its budget of the target's memory; `None` if it has no limit, because use is not counted then.
    pub memory: Option<Memory>,
    /// True if its next frames wait for something: code, or space for a reply.
    pub waits: bool,
    /// Its rights.
    pub rights: Rights,
    /// The operator's name for its key; `None` if it needed no key, or the key has no name.
    pub key: Option<String>,
    /// The transport of its frames, and whether they are encrypted if that uses streams.
    pub path: String,
}

/// The budget of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes taken.
    pub used: u64,
    /// Bytes that it may take.
    pub limit: u64,
}

#[cfg(test)]
mod tests {
    use farjump_core::image::{Level, Machine};

    use super::*;

    #[test]
    fn each_admin_request_and_response_has_the_documented_encoding() {
        let id = [3; 16];
        let requests = [
            (AdminRequest::Store, vec![0]),
            (AdminRequest::Drop { id }, [&[1][..], &id].concat()),
            (AdminRequest::DropAll, vec![2]),
            (AdminRequest::Stats, vec![3]),
            (AdminRequest::Export { name: "k".into(), library: vec![7, 8] }, vec![4, 1, b'k', 2, 7, 8]),
        ];
        for (request, bytes) in requests {
            assert_eq!(postcard::to_stdvec(&request).unwrap(), bytes, "{request:?}");
        }
        let image = StoredImage {
            link_time: Duration::from_nanos(1),
            calls: 2,
            time: Duration::from_nanos(4),
            last_use: Duration::from_nanos(5),
            own: true,
            platform: "m".into(),
            family: FamilyId([6; 16]),
            ..StoredImage::new(CodeId(id), "f", 300, "p")
        };
        let image_bytes = [&id[..], &[1, b'f', 0xac, 2, 1, 2, 4, 5, 1, b'p', 1, 1, b'm'], &[6; 16]].concat();
        let source = |memory| SourceStats {
            program: "s".into(),
            pid: 7,
            bytes: 128,
            memory,
            waits: false,
            rights: Rights::CALL,
            key: None,
            path: "r".into(),
        };
        let stats = TargetStats {
            program: "t".into(),
            pid: 1,
            epoch: 2,
            links: 3,
            links_made: 4,
            links_ended: 5,
            sources_refused: 6,
            frames: 7,
            bytes: 8,
            calls: 9,
            forwarded: 10,
            images_linked: 11,
            link_ns: 12,
            refused: vec![13, 14],
            store: StoreStats {
                images: 15,
                bytes: 16,
                capacity_images: Some(17),
                capacity_bytes: None,
                evictions: 19,
                arena_used: 20,
                arena_capacity: 21,
            },
            sources: vec![
                source(None),
                SourceStats { key: Some("k".into()), ..source(Some(Memory { used: 22, limit: 23 })) },
            ],
            ucx_tcp: true,
            ucx_ports_closed_by: Some("f".into()),
            cpu: Cpu::of_level(Machine(7), Level::BASELINE),
        };
        let stats_bytes = [
            &[2, 1, b't', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2, 13, 14][..],
            &[15, 16, 1, 17, 0, 19, 20, 21],
            &[
                2, 1, b's', 7, 0x80, 1, 0, 0, 2, 0, 1, b'r', 1, b's', 7, 0x80, 1, 1, 22, 23, 0, 2, 1, 1,
                b'k', 1, b'r', 1, 1, 1, b'f', 6, 7, 0, 0, 1, 0, 0,
            ],
        ];
        let responses = [
            (
                AdminResponse::Store(StoreListing { images: vec![image], left_out: 6 }),
                [&[0, 1][..], &image_bytes, &[6]].concat(),
            ),
            (AdminResponse::Dropped(Dropped { images: 1, kept: 2 }), vec![1, 1, 2]),
            (AdminResponse::Stats(stats), stats_bytes.concat()),
            (AdminResponse::Exported { replaced: vec!["f".into()] }, vec![3, 1, 1, b'f']),
        ];
        for (response, bytes) in responses {
            assert_eq!(postcard::to_stdvec(&response).unwrap(), bytes, "{}", response.name());
            assert_eq!(postcard::from_bytes::<AdminResponse>(&bytes).unwrap(), response);
        }
    }

    #[test]
    fn the_longest_list_with_the_longest_names_fits_a_message() {
        // Four bytes a character: an ifunc's name of 255 bytes; a program's of 64 characters, and its pid.
        let (name, source) = ("n".repeat(255), format!("{} (pid {})", "\u{10000}".repeat(64), u32::MAX));
        let most = u64::MAX;
        let longest = Duration::from_nanos(most);
        let image = StoredImage {
            link_time: longest,
            calls: most,
            time: longest,
            last_use: longest,
            own: true,
            ..StoredImage::new(CodeId([0xff; 16]), name, usize::MAX, source)
        };
        let one = postcard::to_stdvec(&image).unwrap().len();
        assert!(one * MAX_LISTED + 64 <= crate::MAX_CODE, "{one} bytes each");
    }
}
