//! Arrival rules: the proof that all of a frame has arrived.

use alloc::string::String;

bitflags::bitflags! {
    /// The ways in which a receiver may know that a whole frame has arrived: the rules that a backend can
    /// honour.
    ///
    /// A rule is never assumed: the peers intersect their sets in the handshake and take the first of
    /// [`ArrivalRules::PREFERENCE`] in both. A backend lists a rule only if it holds on *this* device, lane
    /// and machine. Polling the last byte of one write, for example, is safe on some adapters and torn on
    /// others.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct ArrivalRules: u8 {
        /// Plain stores into memory mapped in both processes; the signal is stored last with release order.
        /// Needs [`RemoteMemory::mapped`]. A backend with this rule also lists `FENCED` and `CHECKED`, and
        /// carries out puts, fences and words over its mapping. Frames travel that way if middleware of
        /// either peer hides the mapping.
        const STORES = 1 << 0;
        /// One write whose bytes become visible in ascending order: the signal that ends it proves all bytes
        /// before it. The receiver queries its device for this (`ibv_query_qp_data_in_order`); the sender
        /// does not.
        const IN_ORDER = 1 << 1;
        /// The frame without its signal, [`RemoteMemory::fence`], then the signal in a separate write.
        const FENCED = 1 << 2;
        /// One write with immediate data, which a completion reports to the receiver
        /// ([`LocalMemory::completions`]).
        const WRITE_IMM = 1 << 3;
        /// One write in any order. The trailer is a keyed checksum of the frame; a torn frame counts as not
        /// yet arrived. Costs a pass over the frame in both peers. Any memory can honour it.
        const CHECKED = 1 << 4;
        /// The transport delivers whole messages (two-sided).
        const DELIVERED = 1 << 5;
    }
}

impl ArrivalRules {
    /// The order of preference among common rules. One write for a frame comes before two, and a proof of the
    /// whole frame before a computation over it.
    pub const PREFERENCE: [ArrivalRules; 6] =
        [Self::STORES, Self::DELIVERED, Self::IN_ORDER, Self::WRITE_IMM, Self::FENCED, Self::CHECKED];

    /// The rule that two peers use; `None` if they have none in common.
    pub fn agree(self, other: ArrivalRules) -> Option<ArrivalRules> {
        let both = self & other;
        Self::PREFERENCE.into_iter().find(|rule| both.contains(*rule))
    }

    /// The name of a single rule for people: `stores`, `fenced`, …; several are joined by commas.
    pub fn describe(self) -> String {
        let mut text = String::new();
        for (rule, name) in [
            (Self::STORES, "stores"),
            (Self::IN_ORDER, "in-order"),
            (Self::FENCED, "fenced"),
            (Self::WRITE_IMM, "write-imm"),
            (Self::CHECKED, "checked"),
            (Self::DELIVERED, "delivered"),
        ] {
            if self.contains(rule) {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(name);
            }
        }
        text
    }
}
