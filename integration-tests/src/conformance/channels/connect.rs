//! Two channels, connected to each other.

use farjump_core::channel::{Channel, ChannelParams};
use farjump_core::mailbox;
use farjump_core::signal::LinkKey;
use farjump_core::transport::{ArrivalRules, Capabilities, Endpoint, OpenRequest};

use crate::conformance::failure::{Counted, Failure, ensure};
use crate::conformance::subject::{Keep, Subject};
use crate::connect;

/// Two connected channels.
pub(super) struct ChannelPair {
    pub(super) left: Channel,
    pub(super) right: Channel,
    // Dropped last.
    keep: Keep,
}

/// Two connected endpoints, and their parameters.
pub(super) struct Raw {
    pub(super) left: Endpoint,
    pub(super) right: Endpoint,
    pub(super) capabilities: [Capabilities; 2],
    pub(super) request: OpenRequest,
    pub(super) keep: Keep,
}

impl Raw {
    /// Connects one of the subject's pairs with regions for rings of `ring` bytes and frames of up to `max_frame`, or
    /// up to the path's limit.
    pub(super) fn connect(subject: &Subject, ring: usize, max_frame: usize) -> Result<Raw, Failure> {
        let mut pair = subject.make();
        let capabilities = [pair.source.capabilities(), pair.target.capabilities()];
        let [left, right] = capabilities;
        let rule = left.arrival.agree(right.arrival);
        ensure!(
            rule == Some(subject.rule()),
            "the two agree to use {rule:?}, and not {}",
            subject.rule().describe()
        );
        let max_frame = max_frame.min(left.max_frame).min(right.max_frame);
        let request = OpenRequest::new(mailbox::region_len(ring), max_frame);
        let (left, right) =
            connect::connect_over(pair.streams, &mut *pair.source, &mut *pair.target, &request)?;
        Ok(Raw { left, right, capabilities, request, keep: pair.keep })
    }
}

impl ChannelPair {
    /// Connects as [`Raw::connect`], and makes channels.
    pub(super) fn connect(subject: &Subject, ring: usize, max_frame: usize) -> Result<ChannelPair, Failure> {
        ChannelPair::connect_under(subject, subject.rule(), ring, max_frame)
    }

    /// Connects channels that assume `rule`, whether the path honours it or not.
    pub(super) fn connect_under(
        subject: &Subject,
        rule: ArrivalRules,
        ring: usize,
        max_frame: usize,
    ) -> Result<ChannelPair, Failure> {
        let raw = Raw::connect(subject, ring, max_frame)?;
        let line_whole = raw.capabilities.iter().all(|capabilities| capabilities.line_whole);
        let keys = [LinkKey::from_bytes(*b"from left onward"), LinkKey::from_bytes(*b"and to the left.")];
        let terms = |send_key, receive_key| ChannelParams {
            rule,
            line_whole,
            send_key,
            receive_key,
            send_limit: raw.request.max_frame,
            receive_limit: raw.request.max_frame,
            send_region: raw.request.region_len,
            receive_region: raw.request.region_len,
        };
        let left = Channel::new(raw.left, terms(keys[0], keys[1]))?;
        let right = Channel::new(raw.right, terms(keys[1], keys[0]))?;
        Ok(ChannelPair { left, right, keep: raw.keep })
    }

    /// Closes both channels, and fails if the pair noticed a violation by core.
    pub(super) fn close(self, counted: u64) -> Counted {
        let ChannelPair { left, right, keep } = self;
        drop((left, right));
        judge(&keep)?;
        Ok(counted)
    }

    /// Lets both channels make progress, as an idle receiver does.
    pub(super) fn progress(&mut self) -> Result<(), Failure> {
        self.left.progress(true)?;
        self.right.progress(true)?;
        Ok(())
    }

    /// The two channels, for two threads. The pair is not judged.
    pub(super) fn split(self) -> (Channel, Channel, Keep) {
        (self.left, self.right, self.keep)
    }
}

/// Fails if the pair noticed a violation by core.
pub(super) fn judge(keep: &Keep) -> Result<(), Failure> {
    let wrong = keep.verdict();
    ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
    Ok(())
}
