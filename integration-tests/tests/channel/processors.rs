//! Processors: peers whose memory is mapped learn whether they share one.

use farjump_core::transport::ArrivalRules;

use super::peers::{Pair, RULES};

#[test]
fn peers_notice_a_shared_processor_only_in_mapped_memory() {
    for (rule, line_whole) in RULES {
        let Pair { mut left, mut right } = Pair::new(rule, line_whole, 4096);
        let known = |shared| (rule == ArrivalRules::STORES).then_some(shared);
        // The right peer has sent nothing yet; 0 is a processor like any other.
        assert_eq!(left.channel.shares_processor(0), known(false), "{rule:?}");
        assert_eq!(right.channel.shares_processor(0), known(true), "{rule:?}");
        assert_eq!(left.channel.shares_processor(0), known(true), "{rule:?}");
        // The right peer moves to another processor.
        assert_eq!(right.channel.shares_processor(1), known(false), "{rule:?}");
        assert_eq!(left.channel.shares_processor(0), known(false), "{rule:?}");
        assert_eq!(left.channel.shares_processor(1), known(true), "{rule:?}");
        // This does not affect frames.
        left.send(7, b"frame").unwrap();
        left.wire.lock().unwrap().deliver_all();
        assert_eq!(right.take(), Some((7, b"frame".to_vec())), "{rule:?}");
    }
}
