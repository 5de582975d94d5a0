//! Replies that the source does not take: they block their own link, and no other.

use farjump_core::transport::InboxKind;

use super::calls::{fill_args, same};
use crate::conformance::failure::{Counted, ensure};
use crate::conformance::host::{Args, Fixture, PATIENCE};
use crate::conformance::pattern;

/// Size of the reply mailbox, in bytes.
const MAILBOX_SIZE: usize = 64 << 10;
/// Length of one reply, if the path has frames of that length.
const REPLY: usize = 12_000;
/// Number of calls: far more replies than fit.
const CALLS: u64 = 40;
/// Calls on another link meanwhile.
const OTHERS: u64 = 20;

pub(in crate::conformance) fn unread(fixture: &Fixture) -> Counted {
    let one_sided = fixture.subject().make().source.capabilities().inbox == InboxKind::OneSided;
    let len = fixture.fitting(REPLY);
    let mut host = fixture.host(Args::Word)?;
    let link = host.link_with(|builder| builder.reply_mailbox_size(MAILBOX_SIZE))?;
    let other = host.link()?;
    let calls: Vec<_> = (0..CALLS)
        .map(|number| link.inject(&fixture.libraries.fill, &fill_args(len, 21, number)))
        .collect::<Result<_, _>>()?;
    for number in 0..OTHERS {
        let bytes = pattern::bytes(500, 22, number);
        same(&other.inject(&fixture.libraries.echo, &bytes)?.wait(PATIENCE)?, &bytes)?;
    }
    let ran = host.counts()?.calls - OTHERS;
    // The only space is a mailbox. (A source that waits for credit takes replies meanwhile.)
    ensure!(
        ran < CALLS || !one_sided,
        "{ran} replies of {len} bytes went into {MAILBOX_SIZE} bytes of space"
    );
    for (number, call) in (0..).zip(calls) {
        same(&call.wait(PATIENCE)?, &pattern::bytes(len, 21, number))?;
    }
    Ok(CALLS + OTHERS)
}
