//! The code of an ifunc: an image for each machine that it has one for.

use std::sync::Arc;

use farjump_core::image::{CodeId, Machine, Platform};
use farjump_loader::{Library, LibraryImage, LinkedImage};

use super::frame::{self, Listed, MACHINES, Part};

/// The images of an ifunc.
#[derive(Debug)]
pub(super) struct Codes {
    /// The id of their list.
    id: CodeId,
    all: Vec<Code>,
}

#[derive(Debug)]
struct Code {
    machine: Machine,
    id: CodeId,
    bytes: Bytes,
}

/// The bytes of an image, by the place where they are.
#[derive(Debug)]
enum Bytes {
    InLibrary(LibraryImage),
    /// Placed in this process.
    Placed(Arc<LinkedImage>),
    /// Kept to be sent on.
    Kept(Box<[u8]>),
    /// Not in this process.
    Absent,
}

impl Codes {
    fn of(all: Vec<Code>) -> Codes {
        let id = frame::id_of_list(all.iter().map(|code| (code.id, code.machine)));
        Codes { id, all }
    }

    /// Returns the images of libraries for any CPU of each machine, each from the first library that has one. `None` if
    /// none has any.
    pub(super) fn of_libraries(libraries: &[Library]) -> Option<Codes> {
        let image = |machine| {
            let platform = Platform::baseline(machine);
            libraries.iter().find_map(|library| Some((machine, library.image_for(platform).ok()?)))
        };
        let code = |(machine, image): (_, &LibraryImage)| Code {
            machine,
            id: image.id(),
            bytes: Bytes::InLibrary(image.clone()),
        };
        let all: Vec<_> = MACHINES.into_iter().filter_map(image).map(code).collect();
        (!all.is_empty()).then(|| Codes::of(all))
    }

    /// Returns the images that a frame brought. `placed` is the one that was placed here. Keeps the others while they
    /// fit into the `capacity` bytes left, which it reduces.
    pub(super) fn of_part(part: &Part<'_>, placed: &Arc<LinkedImage>, capacity: &mut usize) -> Codes {
        let code = |listed: &Listed<'_>| {
            let bytes = match listed.bytes {
                _ if listed.id == placed.id() => Bytes::Placed(Arc::clone(placed)),
                bytes if bytes.is_empty() || bytes.len() > *capacity => Bytes::Absent,
                bytes => {
                    *capacity -= bytes.len();
                    Bytes::Kept(bytes.into())
                }
            };
            Code { machine: listed.machine, id: listed.id, bytes }
        };
        Codes::of(part.images.iter().map(code).collect())
    }

    /// Returns the id of the list.
    pub(super) fn id(&self) -> CodeId {
        self.id
    }

    /// Returns the list, for a frame.
    pub(super) fn listed(&self) -> Vec<Listed<'_>> {
        self.all
            .iter()
            .map(|code| Listed { machine: code.machine, id: code.id, bytes: code.bytes() })
            .collect()
    }
}

impl Code {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::InLibrary(image) => image.bytes(),
            Bytes::Placed(linked) => linked.image(),
            Bytes::Kept(bytes) => bytes,
            Bytes::Absent => &[],
        }
    }
}
