//! The steps of a conversation with the owner of a store.

use fastrand::Rng;

/// Most sources that have a link.
pub const PEERS: usize = 3;

/// The form in which a source leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// In order.
    Well,
    /// As a killed process does.
    Killed,
    /// In order, while copies of its descriptors and its memory stay: those of a process that it forked.
    Forked,
}

/// One step. Numbers of objects, claims and blocks are modulo the number of existing ones. `It` is the source of the
/// first number.
#[derive(Clone, Copy, Debug)]
pub enum StoreStep {
    /// The source of this number connects, if it has no link.
    Connect(usize),
    /// It puts an object of this length, in the request.
    Put(usize, usize),
    /// It gets memory for an object, and begins to write there.
    Allocate(usize, usize),
    /// All sources that have begun to write continue, whether their links are over or not.
    Write,
    /// It has written an object that it began.
    Commit(usize, usize),
    /// It evicts an object that it has not finished.
    Abandon(usize, usize),
    /// It claims an object.
    Claim(usize, usize),
    /// It releases a claim.
    Release(usize, usize),
    /// It evicts an object.
    Evict(usize, usize),
    /// It gives an object a lease of some milliseconds.
    Lease(usize, usize, u8),
    /// The owner puts an object.
    OwnerPuts(usize),
    /// The owner gets an object, and keeps the view.
    OwnerGets(usize),
    /// The owner drops a view.
    OwnerDrops(usize),
    /// The owner evicts an object.
    OwnerEvicts(usize),
    /// The owner gives some objects leases of some nanoseconds, and gets each right after its lease.
    Race(usize, u32),
    /// A source publishes some objects to another one.
    Pass(usize, usize),
    /// A source opens a topic, to publish there.
    Open(usize, u8),
    /// A publisher publishes an object, which the topic may own.
    Publish(usize, usize, bool),
    /// A publisher finishes.
    Finish(usize, usize),
    /// A source subscribes to a topic.
    Subscribe(usize, u8),
    /// A subscriber takes some entries.
    Next(usize, usize),
    /// A subscriber ends.
    Unsubscribe(usize, usize),
    /// A source opens many topics, makes many members of one, and leaves.
    Crowd(usize, Leaving),
    /// The owner fills the store with objects of one byte and long names, and evicts some.
    Flood,
    /// A process puts and reads objects, and is stopped after this many turns. If the number is even, the owner ends
    /// its link. The owner uses the store. In most cases the process continues. Then it is killed.
    Process(u8),
    /// The owner ends all links. The sources whose bits are set notice it, and let go of everything.
    EndLinks(u8),
    /// The owner drops its target, and makes another one.
    EndTarget(u8),
    /// A source leaves.
    Leave(usize, Leaving),
    /// A source that has left and still maps the memory lets go of it.
    LetGo(usize),
    /// Turns of the target.
    Turns(u8),
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Script {
    /// Bytes of the store.
    pub capacity: u64,
    /// Whether it has a file.
    pub spills: bool,
    /// Its steps.
    pub steps: Vec<StoreStep>,
}

impl Script {
    /// Makes a conversation by the seed.
    pub fn new(rng: &mut Rng) -> Script {
        // With a file the capacity is so small that objects soon go to the file.
        let spills = rng.bool();
        let floods = !spills && rng.u8(..6) == 0;
        let pages = if floods { 128 } else { rng.u64(16..if spills { 28 } else { 64 }) };
        let capacity = pages << 12;
        let mut steps = vec![StoreStep::Connect(0), StoreStep::Connect(1)];
        let count = rng.usize(40..160);
        while steps.len() < count {
            steps.push(step(rng, spills));
        }
        if rng.u8(..8) == 0 {
            steps.insert(rng.usize(..steps.len()), StoreStep::Process(rng.u8(..)));
        }
        if rng.u8(..8) == 0 {
            let crowd = StoreStep::Crowd(rng.usize(..PEERS), leaving(rng));
            steps.insert(rng.usize(..steps.len()), crowd);
        }
        if floods {
            steps.insert(rng.usize(..steps.len()), StoreStep::Flood);
        }
        Script { capacity, spills, steps }
    }
}

fn leaving(rng: &mut Rng) -> Leaving {
    [Leaving::Well, Leaving::Killed, Leaving::Forked][rng.usize(..3)]
}

/// One of a few lengths, so that one object soon lies where another one was.
fn len(rng: &mut Rng) -> usize {
    [1, 64, 3000, 16 << 10, 16 << 10, 40_000][rng.usize(..6)]
}

fn step(rng: &mut Rng, spills: bool) -> StoreStep {
    let (peer, which) = (rng.usize(..PEERS), rng.usize(..1 << 16));
    match rng.u8(..80) {
        64 => StoreStep::Open(peer, rng.u8(..)),
        65 => StoreStep::Pass(peer, which),
        66..69 => StoreStep::Publish(peer, which, rng.bool()),
        69 => StoreStep::Finish(peer, which),
        70..72 => StoreStep::Subscribe(peer, rng.u8(..)),
        72..75 => StoreStep::Next(peer, which),
        75 => StoreStep::Unsubscribe(peer, which),
        0..4 => StoreStep::Connect(peer),
        4..8 => StoreStep::Put(peer, len(rng).min(3000)),
        8..16 => StoreStep::Allocate(peer, len(rng)),
        16..20 => StoreStep::Write,
        20..26 => StoreStep::Commit(peer, which),
        26 => StoreStep::Abandon(peer, which),
        27..35 => StoreStep::Claim(peer, which),
        35..38 => StoreStep::Release(peer, which),
        38 | 39 => StoreStep::Evict(peer, which),
        40 => StoreStep::Lease(peer, which, rng.u8(..3)),
        41..46 => StoreStep::OwnerPuts(len(rng)),
        46 | 47 => StoreStep::OwnerGets(which),
        48 => StoreStep::OwnerDrops(which),
        49..52 => StoreStep::OwnerEvicts(which),
        52 | 53 if spills => StoreStep::Race(which, rng.u32(..20_000)),
        54 => StoreStep::EndLinks(rng.u8(..8)),
        55 => StoreStep::EndTarget(rng.u8(..8)),
        56..59 => StoreStep::Leave(peer, leaving(rng)),
        59 => StoreStep::LetGo(which),
        _ => StoreStep::Turns(rng.u8(1..4)),
    }
}
