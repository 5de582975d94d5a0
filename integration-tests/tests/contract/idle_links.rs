//! The work that a target asks of a transport while its links are idle.

use std::path::Path;
use std::thread;
use std::time::Duration;

use farjump::build::{Options, build};
use farjump::{Library, Link, Target};
use farjump_integration_tests::middleware::{Metered, Step};
use farjump_transports::tcp::Tcp;

const PATIENCE: Duration = Duration::from_secs(30);
const LINKS: usize = 40;

fn echo(folder: &Path) -> Library {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ifuncs/echo.c");
    let output = folder.join("libecho.so");
    build(&Options { inputs: vec![source], output: output.clone(), ..Options::default() }).unwrap();
    Library::open(output).unwrap()
}

/// Polls `target` until `act` is over on another thread.
fn alongside<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(act);
        while !other.is_finished() {
            target.wait(Duration::from_millis(1)).unwrap();
            target.poll().unwrap();
        }
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn links_that_bring_nothing_are_not_polled_and_one_that_does_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
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
    // Until the target treats each link as idle.
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
