//! The calls of `docs/guide/handles-streams.md`, which shows the lines of `calls`.

use farjump_handles::{Client, Error, Handle};

use super::support::Owner;

fn calls(client: &Client, handle: &Handle, pixels: &[u8], mut show: impl FnMut(&[u8])) -> Result<(), Error> {
    use std::time::Duration;

    use farjump_handles::{Patience, PublisherConfig, SubscriberConfig};

    let mut publisher = client.publisher("frames", PublisherConfig::default())?;
    // The topic owns this object, and the other one stays its maker's.
    publisher.publish_bytes("frame", &[pixels])?;
    publisher.publish(handle)?;
    publisher.finish()?;

    let mut subscriber = client.subscribe("frames", SubscriberConfig::default())?;
    while let Some(item) = subscriber.next(&mut Patience::of(Duration::from_secs(10)))? {
        let view = client.get(item.handle())?;
        show(&view);
    }
    Ok(())
}

#[test]
fn the_calls_of_the_page_pass_two_objects_and_end() {
    let owner = Owner::new("mapped", 1 << 20);
    let handle = owner.store.put(b"the maker's").unwrap();
    let mut shown = Vec::new();
    calls(&owner.client(), &handle, b"pixels", |bytes| shown.push(bytes.to_vec())).unwrap();
    assert_eq!(shown, [b"pixels".to_vec(), b"the maker's".to_vec()]);
    assert_eq!(&*owner.client().get(&handle).unwrap(), b"the maker's");
}
