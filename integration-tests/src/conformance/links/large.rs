//! Payloads too long for the mailbox.

use farjump::{Error, InjectError};
use farjump_core::transport::InboxKind;

use super::one_way_streams::witness_args;
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::host::{AROUND, Args, Fixture, MAILBOX, MAX_PAYLOAD, PATIENCE};

/// Longest frame that is tried, in bytes.
const LONGEST_TRIED: usize = 8 << 20;
/// Seed of the patterns.
const SEED: u64 = 47;

/// Sends long payloads through a large mailbox, or as single messages, in order among small ones. A payload too long
/// for the path is refused here, and the link stays usable.
pub(in crate::conformance) fn large(fixture: &Fixture) -> Counted {
    let mut host = fixture.host(Args::Word)?;
    let link = host.link()?;
    let witness = &fixture.libraries.witness;
    let inbox = fixture.subject().make().source.capabilities().inbox;
    let (path, mailbox) = (fixture.max_frame(), MAILBOX);
    if inbox == InboxKind::TwoSided {
        let takes = link.max_frame();
        ensure!(takes >= path.min(MAX_PAYLOAD), "frames of {takes} bytes at most are taken");
    }
    if path <= LONGEST_TRIED {
        let long = link.inject(witness, &witness_args(SEED, 0, path + 1));
        ensure!(
            matches!(long, Err(Error::Inject(InjectError::TooLarge { .. }))),
            "a payload over the path's limit gives {long:?}"
        );
    }
    let most = path.min(3 * mailbox) - AROUND;
    let longest = path.min(LONGEST_TRIED) - AROUND;
    let near = [40, mailbox + 1, 16, 700, most, most - 4096, 24, mailbox - 72, mailbox - 71, 5000, most];
    let mut sent = 0;
    for len in near.into_iter().chain([longest, 40, longest]) {
        link.send(witness, &witness_args(SEED, sent, fixture.fitting(len)))?;
        sent += 1;
    }
    link.flush(PATIENCE)?;
    let word = host.word()?;
    ensure!(word == sent, "{sent} calls were sent, and {word} have run in their order");
    Ok(sent)
}
