//! Notices of a source over a transport whose backend moves the frames.

use std::thread;
use std::time::Duration;

use farjump::{Link, Target};
use farjump_integration_tests::fakes::{FakeOneSided, Rule};

use super::{PATIENCE, alongside, echo};

/// So long that the target never checks the control connection by a system call.
const NEVER: Duration = Duration::from_secs(100_000);
const NAME: &str = "fake-one-sided";

#[test]
fn a_notice_moved_by_a_backend_makes_targets_read_control_messages() {
    let folder = farjump_fixtures::folder();
    let echo = &echo(folder.path());
    for rule in [Rule::InOrder, Rule::Fenced, Rule::WriteImm, Rule::Checked] {
        let address = format!("unix:{}/{rule:?}", folder.path().display());
        let fake = || FakeOneSided::new(rule, 1);
        let (ours, theirs) = (fake(), fake());
        let moved = [ours.handle().pump_in_background(), theirs.handle().pump_in_background()];
        let target = Target::listen(&address).with_transport(Box::new(ours)).transport(NAME);
        let mut target = target.mailbox_size(1 << 16).control_interval(NEVER).build().unwrap();
        let link = alongside(&mut target, || {
            let link =
                Link::builder(&address).with_transport(Box::new(theirs)).transport(NAME).connect().unwrap();
            link.inject(echo, b"first").unwrap().wait(PATIENCE).unwrap();
            link
        });
        // From here on the target only polls.
        thread::scope(|scope| {
            let source = scope.spawn(move || {
                // For a payload of this length the source requests a large mailbox, on the control connection.
                link.send(echo, &vec![7; 1 << 18])?;
                link.flush(PATIENCE)
            });
            while !source.is_finished() {
                target.poll().unwrap();
            }
            source.join().unwrap().unwrap_or_else(|error| panic!("{rule:?}: {error}"));
        });
        drop(moved);
    }
}
