//! The body for replies of an owner, as its client reads them.
//!
//! Its input: a byte of choices, then replies, each behind its length (`u16`). A reply of the length [`HONEST`] has
//! no bytes: the store gives its own. The client sends requests until the replies are used up.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump::Target;
use farjump::objects::{Objects, Request, RequestState};
use farjump_handles::{Client, Error, Handle, Patience, PublisherConfig, Service, Store, SubscriberConfig};

use crate::assert_words;
use responding::Responding;

#[path = "../../../handles/tests/support/mod.rs"]
mod responding;

/// The length that stands for a reply of the store's own.
pub(crate) const HONEST: u16 = u16::MAX;
/// The choice by which the client maps the owner's memory.
pub(crate) const MAPPED: u8 = 1;
/// The store's memory, in bytes.
const CAPACITY: u64 = 256 << 10;
/// Most replies of an input.
const MOST_REPLIES: usize = 64;
/// Time limit of the client. Replies come at once. A reply that requires a wait is waited for this long.
const TIMEOUT: Duration = Duration::from_millis(20);
/// Longest contents that are put: they travel in parts, and not in the request to put them.
const LONG: usize = 3000;

/// The replies of the owner.
#[derive(Debug)]
struct Script {
    /// `None` stands for a reply of the store's own.
    replies: VecDeque<Option<Vec<u8>>>,
    /// The store of the next client.
    next: Option<Service>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the next reply of the input.
fn respond(
    script: &Mutex<Script>,
    service: &mut Service,
    source: u64,
    request: Request<'_>,
    reply: &mut Vec<u8>,
    limit: usize,
) -> Result<RequestState, String> {
    const HELLO: u8 = 0;
    // Write, Release, Hold, and Release of streams: their replies are not read.
    const ONE_WAY: [u8; 4] = [3, 6, 14, 69];
    let mut op = [0];
    request.copy_to(0, &mut op);
    let mut script = lock(script);
    if op[0] == HELLO
        && let Some(next) = script.next.take()
    {
        *service = next;
    }
    let scripted = if ONE_WAY.contains(&op[0]) { None } else { script.replies.pop_front() };
    drop(script);
    match scripted {
        Some(Some(bytes)) => {
            reply.extend(&bytes[..bytes.len().min(limit)]);
            Ok(RequestState::Done)
        }
        _ => service.request(source, request, reply, limit),
    }
}

/// The owner of this process: its address, and its script.
struct Owner {
    address: String,
    script: Arc<Mutex<Script>>,
    /// Locked while an input runs.
    turn: Mutex<()>,
}

static OWNER: LazyLock<Owner> = LazyLock::new(|| {
    let address = format!("unix:@farjump-fuzz-replies-{}", std::process::id());
    let script = Arc::new(Mutex::new(Script { replies: VecDeque::new(), next: None }));
    let read = Arc::clone(&script);
    let respond = move |service: &mut Service, source, request: Request<'_>, reply: &mut Vec<u8>, limit| {
        respond(&read, service, source, request, reply, limit)
    };
    let scripted = Responding { service: service(), respond };
    let target = Target::listen(&address).objects(scripted).build().expect("the address is free");
    // The owner serves until the process ends: an abstract address leaves no file.
    std::mem::forget(target.spawn().expect("a thread"));
    Owner { address, script, turn: Mutex::default() }
});

fn service() -> Service {
    Store::options().capacity(CAPACITY).build().expect("memory for a store").service()
}

/// Makes a client use an owner that replies anything. Each use ends in its time, with a value or an error that has
/// words, and reads nothing outside of the owner's memory.
pub fn replies(data: &[u8]) {
    run(data);
}

/// Returns the number of requests, or groups of them, that had a value.
fn run(data: &[u8]) -> usize {
    let [choices, replies @ ..] = data else { return 0 };
    let _turn = lock(&OWNER.turn);
    *lock(&OWNER.script) = Script { replies: read(replies), next: Some(service()) };
    let builder = Client::builder(&OWNER.address).timeout(TIMEOUT).mapped(choices & MAPPED != 0);
    match builder.connect() {
        Ok(client) => use_all(&client),
        Err(error) => {
            assert_words(&error);
            0
        }
    }
}

fn read(mut bytes: &[u8]) -> VecDeque<Option<Vec<u8>>> {
    let mut replies = VecDeque::new();
    while let [low, high, rest @ ..] = bytes
        && replies.len() < MOST_REPLIES
    {
        let len = u16::from_le_bytes([*low, *high]);
        let (reply, behind) = rest.split_at(if len == HONEST { 0 } else { rest.len().min(len.into()) });
        replies.push_back((len != HONEST).then(|| reply.to_vec()));
        bytes = behind;
    }
    replies
}

/// The client, and the number of its requests that had a value.
struct User<'c> {
    client: &'c Client,
    done: usize,
}

impl User<'_> {
    /// Returns the outcome if it is no failure. Checks that a failure has words.
    fn done<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        let value = outcome.map_err(|error| assert_words(&error)).ok()?;
        self.done += 1;
        Some(value)
    }
}

/// A handle of the owner: object 1, with a key that is not the object's.
fn handle(epoch: u64) -> Handle {
    let mut bytes = b"FJH\x01".to_vec();
    bytes.extend([epoch, 1, 0].map(u64::to_le_bytes).concat());
    bytes.extend([0; 18]);
    Handle::from_bytes(&bytes).expect("the bytes are a handle")
}

fn soon() -> Patience<'static> {
    Patience::of(TIMEOUT)
}

fn use_all(client: &Client) -> usize {
    let is_used_up = || lock(&OWNER.script).replies.is_empty();
    let object = handle(client.epoch());
    let mut user = User { client, done: 0 };
    let uses: [fn(&mut User<'_>, &Handle); 6] = [get, put, reserve, change, publish, subscribe];
    for act in uses.into_iter().cycle().take(3 * uses.len()) {
        if is_used_up() {
            break;
        }
        act(&mut user, &object);
    }
    user.done
}

fn get(user: &mut User<'_>, object: &Handle) {
    if let Some(view) = user.done(user.client.get_with(object, &mut soon())) {
        assert!(!view.is_mapped() || view.len() as u64 <= CAPACITY, "a view of {} bytes", view.len());
        std::hint::black_box(view.iter().fold(0_u8, |sum, byte| sum ^ byte));
    }
}

fn put(user: &mut User<'_>, _: &Handle) {
    for len in [10, LONG] {
        if let Some(made) = user.done(user.client.put_parts("t", &[&vec![3; len]], &mut soon())) {
            assert_eq!(made.len(), len as u64);
            get(user, &made);
        }
    }
}

fn reserve(user: &mut User<'_>, _: &Handle) {
    if let Some(reserved) = user.done(user.client.reserve("t")) {
        user.done(user.client.wait(&reserved, &mut Patience::of(Duration::ZERO)));
        user.done(user.client.set(&reserved, &[&[4; LONG]], &mut soon()));
        user.done(user.client.wait(&reserved, &mut soon()));
    }
}

fn change(user: &mut User<'_>, object: &Handle) {
    user.done(user.client.exists(object));
    user.done(user.client.lease(object, Some(Duration::from_secs(1))));
    user.done(user.client.count(object, 1));
    user.done(user.client.evict(object));
}

fn publish(user: &mut User<'_>, object: &Handle) {
    let Some(mut publisher) = user.done(user.client.publisher("topic", PublisherConfig::default())) else {
        return;
    };
    user.done(publisher.publish_with(object, false, &mut soon()));
    user.done(publisher.publish_bytes_with("t", &[b"item"], &mut soon()));
    user.done(publisher.finish());
}

fn subscribe(user: &mut User<'_>, _: &Handle) {
    let Some(mut subscriber) = user.done(user.client.subscribe("topic", SubscriberConfig::default())) else {
        return;
    };
    for _ in 0..3 {
        if let Some(Some(item)) = user.done(subscriber.next(&mut soon())) {
            get(user, item.handle());
        }
    }
    user.done(user.client.discard_topic("topic"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_seeds;

    /// Checks that the requests of the seeds succeed. Otherwise mutations of the seeds would reach little. On a slow
    /// machine a request may count as failed, so each input has some tries.
    #[test]
    fn the_seeds_have_requests_done() {
        for (name, input) in store_seeds::replies_of_owners() {
            let least = match name {
                "honest-mapped" | "honest-frames" => 15,
                "mapped" | "frames" => 12,
                "refusals" => 0,
                _ => 1,
            };
            let done = (0..20).map(|_| run(&input)).take_while(|done| *done < least).count();
            assert!(done < 20, "{name}: fewer than {least} requests have a value");
        }
    }
}
