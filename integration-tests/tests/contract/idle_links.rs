//! The work that a target requires of a transport while its links are idle.

use farjump::{Link, Target};
use farjump_integration_tests::middleware::{Metered, Step};
use farjump_transports::tcp::Tcp;

use super::{PATIENCE, alongside, echo};

const LINKS: usize = 40;

#[test]
fn idle_links_are_rarely_polled_and_new_frames_noticed_soon() {
    let folder = farjump_fixtures::folder();
    let echo = echo(folder.path());
    let address = format!("unix:{}", folder.path().join("socket").display());
    let metered = Metered::new(Box::new(Tcp::new()));
    let meter = metered.meter();
    let target = Target::listen(&address).with_transport(Box::new(metered)).transport("tcp");
    let mut target = target.build().unwrap();
    let connect = || Link::builder(&address).transport("tcp").connect().unwrap();
    let links: Vec<_> = (0..LINKS).map(|_| alongside(&mut target, connect)).collect();
    for link in &links {
        let pending = link.inject(&echo, b"").unwrap();
        while target.poll().unwrap() == 0 {}
        assert_eq!(*pending.wait(PATIENCE).unwrap(), *b"");
    }
    // Polls until the target treats each link as idle.
    (0..20_000).for_each(|_| assert_eq!(target.poll().unwrap(), 0));
    let polls = || meter.count(Step::Progress).done;
    let before = polls();
    (0..10_000).for_each(|_| assert_eq!(target.poll().unwrap(), 0));
    let idle = polls() - before;
    assert!(idle <= 100, "{idle} polls of links that bring nothing");

    for link in links.iter().rev() {
        let pending = link.inject(&echo, b"again").unwrap();
        let polls = (1..).find(|_| target.poll().unwrap() != 0).unwrap();
        assert!(polls <= 8, "{polls} polls until a frame that is there is run");
        assert_eq!(*pending.wait(PATIENCE).unwrap(), *b"again");
    }
}
