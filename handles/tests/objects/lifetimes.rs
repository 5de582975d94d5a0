//! Owned and counted objects, typed handles, and handles resolved without a client at hand.

use std::collections::BTreeMap;
use std::time::Duration;

use farjump::{Target, TargetThread};
use farjump_handles::{
    Client, Counted, Error, GoneWhy, Handle, Owned, Resolver, Store, TypeName, TypedHandle,
};

struct Owner {
    store: Store,
    address: String,
    target: Option<TargetThread>,
    _folder: tempfile::TempDir,
}

fn owner() -> Owner {
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("owner.sock").display());
    let mut owner = Owner { store: Store::new().unwrap(), address, target: None, _folder: folder };
    owner.serve();
    owner
}

impl Owner {
    fn serve(&mut self) {
        let target = Target::listen(&self.address).objects(self.store.service()).build().unwrap();
        self.target = Some(target.spawn().unwrap());
    }

    fn client(&self) -> Client {
        Client::connect(&self.address).unwrap()
    }

    fn count(&self) -> usize {
        self.store.list(99).objects.len()
    }
}

#[test]
fn an_owned_object_goes_with_its_owner_in_this_process() {
    let owner = owner();
    let client = owner.client();
    let owned = Owned::new(&client, client.put(b"owned").unwrap());
    // Everything that takes a handle borrows it.
    assert_eq!(&*client.get(&owned).unwrap(), b"owned");
    drop(owned);
    let local = Owned::new(&owner.store, owner.store.put(b"local").unwrap());
    assert_eq!(owner.count(), 1);
    drop(local);
    assert_eq!(owner.count(), 0);
    let kept = Owned::new(&client, client.put(b"kept").unwrap()).into_static();
    assert_eq!(&*client.get(&kept).unwrap(), b"kept");
    let owned = Owned::new(&client, kept.clone());
    assert!(client.evict(&kept).unwrap());
    assert!(!owned.evict().unwrap(), "it was there no more");
}

#[test]
fn a_counted_object_goes_with_its_last_reference_wherever_that_is() {
    let owner = owner();
    let (one, other) = (owner.client(), owner.client());
    let first = Counted::new(&one, one.put(b"counted").unwrap()).unwrap();
    let second = first.another().unwrap();
    let sent = Handle::from_bytes(&second.send().to_bytes()).unwrap();
    drop(first);
    assert_eq!(&*other.get(&sent).unwrap(), b"counted");
    drop(Counted::receive(&other, sent.clone()));
    assert!(matches!(other.get(&sent), Err(Error::Gone { why: GoneWhy::Evicted, .. })));
    assert!(matches!(Counted::new(&one, sent), Err(Error::Gone { .. })));
    let first = Counted::new(&owner.store, owner.store.put(b"counted").unwrap()).unwrap();
    let second = first.another().unwrap();
    assert_eq!((first.release().unwrap(), owner.count()), (1, 1));
    let handle = (*second).clone();
    assert_eq!((second.release().unwrap(), owner.count()), (0, 0));
    let gone = Counted::receive(&one, handle).release().unwrap_err();
    assert!(matches!(gone, Error::Gone { .. }), "{gone}");
}

#[test]
fn handles_are_resolved_by_their_owners_addresses() {
    let (mut one, other) = (owner(), owner());
    let (first, second) = (one.store.put(b"of one").unwrap(), other.store.put(b"of the other").unwrap());
    assert_eq!((&*first.get().unwrap(), &*second.get().unwrap()), (&b"of one"[..], &b"of the other"[..]));
    let resolver = Resolver::new();
    assert_eq!(&*resolver.get(&second).unwrap(), b"of the other");
    assert!(resolver.evict(&second).unwrap() && !resolver.evict(&second).unwrap());

    // A restart with the same store keeps its objects; with another one they are gone.
    one.target = None;
    assert!(first.get().is_err());
    one.serve();
    assert_eq!(&*first.get().unwrap(), b"of one");
    one.target = None;
    one.store = Store::new().unwrap();
    one.serve();
    drop(first.get());
    let gone = first.get().unwrap_err();
    assert!(matches!(gone, Error::Gone { why: GoneWhy::Restarted { .. }, .. }), "{gone}");
    one.target = None;
    let unreachable = first.get().unwrap_err();
    assert!(
        matches!(unreachable, Error::Unreachable(_)) && unreachable.to_string().contains(&one.address),
        "{unreachable}"
    );
    let nowhere = Store::new().unwrap().put(b"x").unwrap();
    assert!(nowhere.get().unwrap_err().to_string().contains("the handle has none"));
}

#[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
struct Table {
    rows: BTreeMap<String, Vec<u32>>,
}

impl TypeName for Table {
    fn type_name() -> String {
        "Table".to_owned()
    }
}

#[test]
fn plain_data_is_read_where_it_lies_and_other_values_are_decoded() {
    let owner = owner();
    let client = owner.client();
    let values = [1.5_f32, -2.0, 3.25];
    let handle = client.put_value(&values[..]).unwrap();
    let value = client.get_value(&handle).unwrap();
    assert_eq!(*value, values);
    assert!(value.into_view().is_mapped());
    assert_eq!(*owner.store.get_value(&owner.store.put_value(&7_u64).unwrap()).unwrap(), 7);

    let table = Table { rows: BTreeMap::from([("one".to_owned(), vec![1, 2])]) };
    let of_table = client.put_serde(&table).unwrap();
    assert_eq!(client.get_serde(&of_table).unwrap(), table);
    assert_eq!(owner.store.get_serde(&of_table).unwrap(), table);

    // A handle that came as bytes has the type that it states, or is refused.
    let untyped = Handle::from_bytes(&handle.to_bytes()).unwrap();
    assert_eq!(TypedHandle::<[f32]>::new(untyped.clone()).unwrap(), handle);
    let wrong = TypedHandle::<[f64]>::new(untyped).unwrap_err().to_string();
    assert!(wrong.contains("`[f32]`") && wrong.contains("`[f64]`"), "{wrong}");
    let short = client
        .put_parts("u64", &[b"four"], &mut farjump_handles::Patience::of(Duration::from_secs(20)))
        .unwrap();
    let short = client.get_value(&TypedHandle::<u64>::new(short).unwrap()).unwrap_err();
    assert!(matches!(short, Error::Type { .. }) && short.to_string().contains("4 bytes"), "{short}");
    let garbage = owner.store.put_as("Table", &[0xff; 30]).unwrap();
    assert!(matches!(
        client.get_serde(&TypedHandle::<Table>::new(garbage).unwrap()),
        Err(Error::Type { .. })
    ));
}
