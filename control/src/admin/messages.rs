//! What may be asked of a target that runs, and what it answers. Times are in nanoseconds, lengths in bytes.

use serde::{Deserialize, Serialize};

use crate::refusal::RefusalCause;
use crate::rights::Rights;

/// Most images, and most sources, that one answer lists: so that it stays within
/// [`MAX_MESSAGE`](crate::MAX_MESSAGE), however long their names are.
pub const MAX_LISTED: usize = 65_536;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// What code is held: [`Answer::Store`].
    Store,
    /// To drop the code with this id: [`Answer::Dropped`].
    Drop {
        /// The code id.
        id: [u8; 16],
    },
    /// To drop all code: [`Answer::Dropped`].
    DropAll,
    /// What was counted: [`Answer::Stats`].
    Stats,
    /// To put what a shared library defines before all that is offered to code until now: [`Answer::Exported`]. Too long for
    /// targets at which the process that asks may not ([`Rights::EXPORT`]).
    Export {
        /// What people call it.
        name: String,
        /// The library's file, at most [`MAX_CODE`](crate::MAX_CODE) bytes.
        #[serde(with = "serde_bytes")]
        library: Vec<u8>,
    },
}

impl Question {
    /// What it is about, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Question::Store => "what code is held",
            Question::Drop { .. } => "to drop code",
            Question::DropAll => "to drop all code",
            Question::Stats => "what was counted",
            Question::Export { .. } => "to load a library",
        }
    }

    /// The right that it takes.
    pub fn needs(&self) -> Rights {
        match self {
            Question::Store | Question::Stats => Rights::OBSERVE,
            Question::Drop { .. } | Question::DropAll => Rights::DROP,
            Question::Export { .. } => Rights::EXPORT,
        }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it is soon written or read")]
pub enum Answer {
    /// What code is held.
    Store(StoreListing),
    /// What was dropped.
    Dropped(Dropped),
    /// What was counted.
    Stats(TargetStats),
    /// The library was loaded.
    Exported {
        /// Exports of the target's own that it takes the place of, in alphabetical order; at most [`MAX_LISTED`].
        replaced: Vec<String>,
    },
}

impl Answer {
    /// Its name, for error texts.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Store(_) => "a list of code",
            Answer::Dropped(_) => "what was dropped",
            Answer::Stats(_) => "what was counted",
            Answer::Exported { .. } => "what a library takes the place of",
        }
    }
}

/// The code that a target holds.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StoreListing {
    /// What was used last comes first; at most [`MAX_LISTED`].
    pub images: Vec<HeldCode>,
    /// How many more are held, which were used longer ago.
    pub left_out: u64,
}

/// One image in a target's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldCode {
    /// Its code id.
    pub id: [u8; 16],
    /// The name under which it first came.
    pub name: String,
    /// Length of the image.
    pub bytes: u64,
    /// How long placing it took.
    pub link_ns: u64,
    /// Calls of it.
    pub calls: u64,
    /// What these calls took together. Of short ones only some are timed: an estimate.
    pub time_ns: u64,
    /// How long ago it was called last; since it came, if it never was.
    pub last_use_ns: u64,
    /// The program that brought it first, and its process id; words for people.
    pub source: String,
    /// Whether it is a function of the target's own, which is not dropped on request.
    pub own: bool,
}

/// What became of code that was to be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// Images that are gone.
    pub images: u64,
    /// Images that were meant and stayed: functions of the target's own.
    pub kept: u64,
}

/// Counters of a target since it was built, and what it is about now.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TargetStats {
    /// Name of the program.
    pub program: String,
    /// Its process id, as it sees itself.
    pub pid: u32,
    /// Its epoch: another one each time a target is built. Counters begin anew with it.
    pub epoch: u64,
    /// Sources that are connected.
    pub links: u64,
    /// Links made.
    pub links_made: u64,
    /// Links that ended.
    pub links_ended: u64,
    /// Processes that were turned away because there were as many sources as the target takes.
    pub sources_refused: u64,
    /// Frames taken: calls, refused or not, and questions whether all has run.
    pub frames: u64,
    /// Bytes that they took of their mailboxes: headers, code, payload, and what was left unused between them.
    pub bytes: u64,
    /// Calls made.
    pub calls: u64,
    /// Of those, calls that were forwarded to a peer.
    pub forwarded: u64,
    /// Images placed.
    pub images_linked: u64,
    /// Time spent placing images.
    pub link_ns: u64,
    /// Frames refused, by [`RefusalCause::index`]. [`TargetStats::refusals`] names them.
    pub refused: Vec<u64>,
    /// The code store.
    pub store: StoreFigures,
    /// The sources that are connected, longest first; at most [`MAX_LISTED`].
    pub sources: Vec<SourceFigures>,
    /// Whether UCX's TCP is on: a process that reaches a port of UCX's may then write the target's memory.
    pub ucx_tcp: bool,
}

impl TargetStats {
    /// Frames refused, by cause, also for causes that never happened.
    pub fn refusals(&self) -> impl Iterator<Item = (RefusalCause, u64)> {
        RefusalCause::ALL.into_iter().zip(self.refused.iter().copied())
    }
}

/// A target's code store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Images held.
    pub images: u64,
    /// Their length as they travelled, together.
    pub bytes: u64,
    /// Most images that it holds; `None` if there is no limit.
    pub capacity_images: Option<u64>,
    /// Most bytes of images that it holds; `None` if there is no limit.
    pub capacity_bytes: Option<u64>,
    /// Images dropped because others needed their place.
    pub evictions: u64,
    /// Room for placed code that is in use.
    pub room_used: u64,
    /// Room for placed code.
    pub room: u64,
}

/// A source that is connected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceFigures {
    /// Name of the program, as it says.
    pub program: String,
    /// Its process id, as the system says; 0 where it has none here.
    pub pid: u32,
    /// Bytes that its frames took of its mailbox, on this link.
    pub bytes: u64,
    /// What it may take of the target's memory, and what of that it has taken; `None` where there is no limit, for then nobody
    /// counts.
    pub memory: Option<Memory>,
    /// Its next frames have to wait for something: code, or room for an answer.
    pub waits: bool,
    /// What it may do.
    pub rights: Rights,
    /// What the target's operator calls the key by which it came; `None` where that needed none, or one that has no name.
    pub key: Option<String>,
    /// The transport by which its frames come, and whether they are sealed on it where that is one of streams.
    pub path: String,
}

/// Memory of a target that is a source's to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// What it has taken.
    pub used: u64,
    /// What it may take.
    pub limit: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_of_each_question_and_answer_is_the_documented_one() {
        let id = [3; 16];
        let questions = [
            (Question::Store, vec![0]),
            (Question::Drop { id }, [&[1][..], &id].concat()),
            (Question::DropAll, vec![2]),
            (Question::Stats, vec![3]),
            (Question::Export { name: "k".into(), library: vec![7, 8] }, vec![4, 1, b'k', 2, 7, 8]),
        ];
        for (question, bytes) in questions {
            assert_eq!(postcard::to_stdvec(&question).unwrap(), bytes, "{question:?}");
        }
        let image = HeldCode {
            id,
            name: "f".into(),
            bytes: 300,
            link_ns: 1,
            calls: 2,
            time_ns: 4,
            last_use_ns: 5,
            source: "p".into(),
            own: true,
        };
        let image_bytes = [&id[..], &[1, b'f', 0xac, 2, 1, 2, 4, 5, 1, b'p', 1]].concat();
        let source = |memory| SourceFigures {
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
            store: StoreFigures {
                images: 15,
                bytes: 16,
                capacity_images: Some(17),
                capacity_bytes: None,
                evictions: 19,
                room_used: 20,
                room: 21,
            },
            sources: vec![
                source(None),
                SourceFigures { key: Some("k".into()), ..source(Some(Memory { used: 22, limit: 23 })) },
            ],
            ucx_tcp: true,
        };
        let stats_bytes = [
            &[2, 1, b't', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 2, 13, 14][..],
            &[15, 16, 1, 17, 0, 19, 20, 21],
            &[
                2, 1, b's', 7, 0x80, 1, 0, 0, 2, 0, 1, b'r', 1, b's', 7, 0x80, 1, 1, 22, 23, 0, 2, 1, 1,
                b'k', 1, b'r', 1,
            ],
        ];
        let answers = [
            (
                Answer::Store(StoreListing { images: vec![image], left_out: 6 }),
                [&[0, 1][..], &image_bytes, &[6]].concat(),
            ),
            (Answer::Dropped(Dropped { images: 1, kept: 2 }), vec![1, 1, 2]),
            (Answer::Stats(stats), stats_bytes.concat()),
            (Answer::Exported { replaced: vec!["f".into()] }, vec![3, 1, 1, b'f']),
        ];
        for (answer, bytes) in answers {
            assert_eq!(postcard::to_stdvec(&answer).unwrap(), bytes, "{}", answer.name());
            assert_eq!(postcard::from_bytes::<Answer>(&bytes).unwrap(), answer);
        }
    }

    #[test]
    fn the_longest_list_with_the_longest_names_fits_a_message() {
        // Four bytes a character: 255 bytes of an ifunc's name; 64 characters of a program's, and its process id.
        let (name, source) = ("n".repeat(255), format!("{} (pid {})", "\u{10000}".repeat(64), u32::MAX));
        let most = u64::MAX;
        let image = HeldCode {
            id: [0xff; 16],
            name,
            bytes: most,
            link_ns: most,
            calls: most,
            time_ns: most,
            last_use_ns: most,
            source,
            own: true,
        };
        let one = postcard::to_stdvec(&image).unwrap().len();
        assert!(one * MAX_LISTED + 64 <= crate::MAX_CODE, "{one} bytes each");
    }
}
