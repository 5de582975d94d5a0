//! Owners, their clients, and helpers that the tests share.

use std::time::{Duration, Instant};

use farjump::{Key, Target, TargetThread};
use farjump_handles::{
    Client, Error, Handle, Patience, Publisher, PublisherConfig, Store, StreamFault, Subscriber,
    SubscriberConfig,
};

/// A store at a target of its own, and the path of its clients.
pub(super) struct Owner {
    pub(super) store: Store,
    pub(super) address: String,
    pub(super) key: Option<Key>,
    pub(super) is_mapped: bool,
    pub(super) _target: TargetThread,
    pub(super) _folder: tempfile::TempDir,
}

impl Owner {
    pub(super) fn new(way: &str, capacity: u64) -> Owner {
        let folder = farjump_fixtures::folder();
        let (address, key) = match way {
            "tcp" => ("tcp:127.0.0.1:0".to_owned(), Some(Key::from_bytes([7; Key::LEN]))),
            _ => (format!("unix:{}", folder.path().join("owner.sock").display()), None),
        };
        let store = Store::options().capacity(capacity).build().unwrap();
        let mut builder = Target::listen(&address).objects(store.service());
        if let Some(key) = &key {
            builder = builder.key(key.clone());
        }
        let target = builder.build().unwrap();
        let (address, is_mapped) = (target.address(), way != "unmapped");
        Owner { store, address, key, is_mapped, _target: target.spawn().unwrap(), _folder: folder }
    }

    pub(super) fn client(&self) -> Client {
        let mut builder = Client::builder(&self.address).mapped(self.is_mapped);
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        builder.connect().unwrap()
    }
}

/// Each path to an owner: mapped, through frames of shared memory, through a stream.
pub(super) fn owners() -> [Owner; 3] {
    ["mapped", "unmapped", "tcp"].map(|way| Owner::new(way, 16 << 20))
}

/// A watchdog's time.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// A link whose requests are made by hand.
pub(super) struct Raw {
    pub(super) link: farjump::Link,
    pub(super) library: farjump::Library,
}

impl Raw {
    pub(super) fn new(owner: &Owner) -> Raw {
        let mut builder = farjump::Link::builder(&owner.address);
        if let Some(key) = &owner.key {
            builder = builder.key(key.clone());
        }
        let link = builder.connect().unwrap();
        link.set_mode(farjump::Mode::Local);
        Raw { link, library: farjump::Library::by_name(farjump::objects::NAME).unwrap() }
    }

    pub(super) fn try_exchange(&self, request: &[u8]) -> Result<Vec<u8>, farjump::Error> {
        Ok(self.link.inject(&self.library, request)?.wait(LONG)?.into_vec())
    }

    pub(super) fn exchange(&self, request: &[u8]) -> Vec<u8> {
        self.try_exchange(request).unwrap()
    }
}

pub(super) fn soon() -> Patience<'static> {
    Patience::of(LONG)
}

pub(super) fn briefly() -> Patience<'static> {
    Patience::of(Duration::from_millis(30))
}

pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(super) fn fault(error: Error) -> StreamFault {
    match error {
        Error::Stream { fault, .. } => fault,
        error => panic!("{error}"),
    }
}

pub(super) fn publisher() -> PublisherConfig {
    PublisherConfig::default()
}

pub(super) fn subscriber() -> SubscriberConfig {
    SubscriberConfig::default()
}

pub(super) fn number_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

pub(super) fn publish_number(publisher: &mut Publisher, number: u64) -> Result<u64, Error> {
    publisher.publish_bytes("number", &[&number.to_le_bytes()])
}

/// The numbers that come until the stream ends.
pub(super) fn numbers(subscriber: &mut Subscriber, get: impl Fn(&Handle) -> Vec<u8>) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(item) = subscriber.next(&mut soon()).unwrap() {
        all.push(number_in(&get(item.handle())));
    }
    all
}

/// Number of objects in the store.
pub(super) fn objects(store: &Store) -> usize {
    store.list(1000).objects.len()
}
