//! The steps of a conversation about errands.

use fastrand::Rng;

/// Most sources at once.
pub const SOURCES: usize = 3;

/// The errand that a source sends.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Whether its source wants a reply.
    pub wants_reply: bool,
    /// The steps of the function `errand`.
    pub steps: String,
}

/// One step.
#[derive(Clone, Debug)]
pub enum ErrandStep {
    /// The source of this number connects, if it has no link.
    Connect(usize),
    /// The source of this number sends an errand.
    Send(usize, Errand),
    /// The host sends an errand, for a principal of its own.
    Own(String),
    /// Turns of the target and its destinations.
    Turns(u8),
    /// The target's host releases replies.
    Release,
    /// The destination's host releases replies.
    ReleaseThere,
    /// The host withdraws the right of a source: its waiting calls are dropped.
    Withdraw(usize),
    /// The source leaves.
    Leave(usize),
    /// The operator gives the source's key other rights, if it has a key.
    ChangeRights(usize),
    /// The operator removes the source's key from the file, if there is one.
    TakeKey(usize),
    /// The host ends all links.
    EndLinks,
    /// A source injects code that it sends to no destination.
    Inject(usize),
    /// The destination that runs nothing requests code.
    RequestCode(u8),
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Script {
    /// True if sources connect over TCP, each with a key of its own in a file.
    pub has_keys: bool,
    /// True if there is a destination that runs errands, and one that requests code.
    pub destinations: bool,
    /// Its steps.
    pub steps: Vec<ErrandStep>,
}

impl Script {
    /// Makes a conversation by the seed.
    pub fn new(rng: &mut Rng) -> Script {
        let has_keys = rng.u8(..8) == 0;
        let destinations = rng.u8(..3) != 0;
        let count = rng.usize(10..60);
        let mut steps: Vec<_> = (0..SOURCES).map(ErrandStep::Connect).collect();
        steps.extend((0..count).map(|_| step(rng, destinations)));
        if has_keys {
            let (source, at) = (rng.usize(..SOURCES), rng.usize(SOURCES..=steps.len()));
            steps.splice(at..at, queued(source).chain([ErrandStep::ChangeRights(source)]));
            let source = rng.usize(..SOURCES);
            steps.extend(queued(source).chain([ErrandStep::TakeKey(source)]));
        }
        Script { has_keys, destinations, steps }
    }
}

/// Makes a source send several errands that end late or never: the target has run some of them when the next step
/// comes.
fn queued(source: usize) -> impl Iterator<Item = ErrandStep> {
    let errand = |steps: &str| Errand { wants_reply: false, steps: steps.to_owned() };
    let sent = ["wwwwwwww", "w.", "nnnnw"].into_iter();
    let sent = sent.map(move |steps| ErrandStep::Send(source, errand(steps)));
    [ErrandStep::Connect(source)].into_iter().chain(sent)
}

fn step(rng: &mut Rng, destinations: bool) -> ErrandStep {
    let source = rng.usize(..SOURCES);
    match rng.u8(..40) {
        0..16 => ErrandStep::Send(
            source,
            Errand { wants_reply: rng.u8(..3) != 0, steps: errand(rng, destinations) },
        ),
        16..18 => ErrandStep::Own(errand(rng, destinations)),
        18..26 => ErrandStep::Turns(rng.u8(1..20)),
        26..29 => ErrandStep::Release,
        29 => ErrandStep::ReleaseThere,
        30..32 => ErrandStep::Withdraw(source),
        32 | 33 => ErrandStep::Leave(source),
        34 | 35 => ErrandStep::Connect(source),
        36 => ErrandStep::EndLinks,
        37 => ErrandStep::Inject(source),
        38 => ErrandStep::RequestCode(rng.u8(..)),
        _ => ErrandStep::Turns(1),
    }
}

/// Steps of an errand.
fn errand(rng: &mut Rng, destinations: bool) -> String {
    let mut steps = String::new();
    for _ in 0..rng.usize(1..12) {
        match rng.u8(..16) {
            0..3 => steps.push('h'),
            3..7 => steps.push('w'),
            // Seldom more than once, as each doubles the calls.
            7 if steps.matches('*').count() < 2 => steps.push('*'),
            8 => steps.push('/'),
            9 if destinations && !steps.is_empty() => steps.push(if rng.u8(..3) == 0 { '?' } else { '>' }),
            10 => steps.extend(std::iter::repeat_n('n', rng.usize(1..16))),
            _ => steps.push('n'),
        }
        if steps.len() > 40 {
            break;
        }
    }
    match rng.u8(..10) {
        // This errand runs for ever.
        0 => steps.push('.'),
        _ => steps.push('w'),
    }
    steps
}
