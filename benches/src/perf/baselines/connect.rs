//! Chooses the baselines, and connects their endpoints.

use std::path::Path;

use super::ring::Layout;
use crate::perf::baselines::{self, Half, Joined};
use crate::perf::child::Pair;
use crate::perf::child_protocol::{Offer, Subject};
use crate::perf::ifuncs::Code;
use crate::perf::metric::Against;
use crate::perf::work::{Task, Way};
use crate::program::failure::Failure;

/// Returns the baselines needed for `asked`: `perftest` is compared with active messages.
pub(crate) fn wanted(asked: &[Against]) -> Vec<Against> {
    let mut wanted = asked.to_vec();
    if let Some(tool) = asked.iter().position(|against| *against == Against::Perftest)
        && !asked.contains(&Against::UcxAm)
    {
        wanted.insert(tool, Against::UcxAm);
    }
    wanted
}

/// A target of farjump's, and the functions injected there.
pub(crate) struct Host<'a> {
    pub(crate) transport: &'a str,
    /// The last part of its address.
    pub(crate) name: String,
    pub(crate) codes: &'a [Code],
    pub(crate) subject: Subject,
}

/// Returns the targets needed: one for each transport and each function that works on data.
pub(crate) fn hosts<'a>(transports: &'a [String], codes: &'a [Code], longest: usize) -> Vec<Host<'a>> {
    let host = |transport: &'a str, codes: &'a [Code]| {
        let work = codes.first().and_then(|code| task_of(Way::Injected(transport.to_owned()), code, longest));
        let (name, subject) = match work {
            Some(task) => (task.host(transport), Subject::Work(task)),
            None => (transport.to_owned(), Subject::Farjump(transport.to_owned())),
        };
        Host { transport, name, codes, subject }
    };
    transports.iter().flat_map(|transport| alike(codes).map(move |codes| host(transport, codes))).collect()
}

/// Groups codes by their baselines: all that count, and each that works.
pub(crate) fn alike(codes: &[Code]) -> impl Iterator<Item = &[Code]> {
    codes.chunk_by(|one, other| one.function == other.function)
}

/// Returns the other process's part of a baseline for `code`, whose data has up to `longest` bytes.
pub(crate) fn subject_for(against: Against, code: &Code, longest: usize) -> Option<Subject> {
    match code.function {
        None => subject_of(against),
        Some(_) => task_of(Way::of(against)?, code, longest).map(Subject::Work),
    }
}

/// Returns the task of doing `code`'s work in one way, if the function works on data.
fn task_of(way: Way, code: &Code, longest: usize) -> Option<Task> {
    let library = code.library.path().to_owned();
    code.function.map(|function| Task { way, function, library, longest })
}

fn subject_of(against: Against) -> Option<Subject> {
    match against {
        Against::Raw => Some(Subject::Raw),
        Against::UcxAm => Some(Subject::UcxAm),
        Against::UcxAmTcp => Some(Subject::UcxAmTcp),
        Against::Stream => Some(Subject::Stream { sealed: false }),
        Against::StreamSealed => Some(Subject::Stream { sealed: true }),
        Against::UcxStores => Some(Subject::UcxStores),
        Against::UcxPut => Some(Subject::UcxPut),
        Against::Iceoryx2 => Some(Subject::Iceoryx2),
        Against::Memcpy
        | Against::Perftest
        | Against::Dlopen
        | Against::Cached
        | Against::Clear
        | Against::Single
        | Against::Fetch
        | Against::RawFetch
        | Against::Alone
        | Against::Futex
        | Against::UcxWait
        | Against::IbWriteLat
        | Against::IbSendLat
        | Against::IbWriteBw => None,
    }
}

/// For each subject its endpoint in this process, if there is one, and the reason if it cannot be measured.
pub(crate) struct Sides {
    pub(crate) sides: Vec<Option<Joined>>,
    pub(crate) whys: Vec<Option<String>>,
}

/// Opens this process's endpoints and connects each to its peer. `theirs` are the other process's subjects.
pub(crate) fn join(
    pair: &mut Pair,
    subjects: &[Subject],
    theirs: Vec<Result<Offer, String>>,
    layout: &Layout,
    folder: &Path,
) -> Result<Sides, Failure> {
    let mut halves: Vec<Option<(Half, Offer)>> = Vec::new();
    let mut offers = Vec::new();
    let mut whys = Vec::new();
    for (subject, theirs) in subjects.iter().zip(theirs) {
        let half = match (subject, theirs) {
            (_, Err(why)) => Err(why),
            (subject, Ok(_)) if subject.is_farjump() => Ok(None),
            (baseline, Ok(theirs)) => baselines::open(baseline, layout, folder, None)
                .and_then(|half| Ok((half.offer()?, half)))
                .map(|(own, half)| Some((half, theirs, own)))
                .map_err(|failure| failure.to_string()),
        };
        let (half, offer, why) = match half {
            Ok(Some((half, theirs, own))) => (Some((half, theirs)), Some(own), None),
            Ok(None) => (None, None, None),
            Err(why) => (None, None, Some(why)),
        };
        halves.push(half);
        offers.push(offer);
        whys.push(why);
    }
    let (joined, own) = pair.join(offers, |memory| {
        let join =
            |half: Option<(Half, Offer)>| half.map(|(half, theirs)| half.join(&theirs, memory, true, layout));
        halves.into_iter().map(join).collect::<Vec<_>>()
    })?;
    let mut sides = Vec::new();
    for ((own, theirs), why) in own.into_iter().zip(joined).zip(&mut whys) {
        let side = match (own, theirs) {
            (Some(Ok(side)), Ok(())) => Some(side),
            (Some(Err(failure)), _) => {
                *why = Some(failure.to_string());
                None
            }
            (_, Err(failure)) => {
                *why = Some(failure);
                None
            }
            (None, Ok(())) => None,
        };
        sides.push(side);
    }
    Ok(Sides { sides, whys })
}
