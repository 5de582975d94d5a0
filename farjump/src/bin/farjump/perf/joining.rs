//! Which references there are, and bringing their two sides together.

use super::message::{Offer, Subject};
use super::options::Against;
use super::pair::Pair;
use super::references::{self, Half, Joined};
use crate::failure::Failure;

/// What is needed for what was asked for: `perftest` is held against active messages.
pub(super) fn wanted(asked: &[Against]) -> Vec<Against> {
    let mut wanted = asked.to_vec();
    if let Some(tool) = asked.iter().position(|against| *against == Against::Perftest)
        && !asked.contains(&Against::UcxAm)
    {
        wanted.insert(tool, Against::UcxAm);
    }
    wanted
}

/// What the other process needs to have for a reference.
pub(super) fn subject_of(against: Against) -> Option<Subject> {
    match against {
        Against::Raw => Some(Subject::Raw),
        Against::UcxAm => Some(Subject::UcxAm),
        Against::UcxStores => Some(Subject::UcxStores),
        Against::UcxPut => Some(Subject::UcxPut),
        Against::Memcpy | Against::Perftest | Against::Dlopen => None,
    }
}

/// For each subject the side in this process, if it has one, and why it cannot be measured, if it cannot.
pub(super) struct Sides {
    pub(super) sides: Vec<Option<Joined>>,
    pub(super) whys: Vec<Option<String>>,
}

/// Makes this process's sides and joins the two of each. `theirs` is what the other process has.
pub(super) fn join(
    pair: &mut Pair,
    subjects: &[Subject],
    theirs: Vec<Result<Offer, String>>,
    region: usize,
    longest: usize,
) -> Result<Sides, Failure> {
    let mut halves: Vec<Option<(Half, Offer)>> = Vec::new();
    let mut offers = Vec::new();
    let mut whys = Vec::new();
    for (subject, theirs) in subjects.iter().zip(theirs) {
        let half = match (subject, theirs) {
            (_, Err(why)) => Err(why),
            (Subject::Farjump(_), Ok(_)) => Ok(None),
            (reference, Ok(theirs)) => references::open(reference, region)
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
        let join = |half: Option<(Half, Offer)>| {
            half.map(|(half, theirs)| half.join(&theirs, memory, true, longest))
        };
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
