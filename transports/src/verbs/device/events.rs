//! The events that a device reports: those that end links, and those that explain the end of a link.
//!
//! A reliable connection survives a port that goes down and comes back in time, and a change of addresses of the port
//! that it does not use. So these events end no link. A link whose packets do not pass ends by a failed request or by
//! its control connection, and these events then explain the end.

use std::ffi::c_int;

use farjump_rdma_sys::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, ibv_async_event, ibv_event_type,
};

/// The explanation by a port that went down.
const DOWN: &str = "the port went down: is the link unplugged, or the network interface down?";
/// Faults that are kept for later readers.
const KEPT: usize = 64;

/// The reported events of the device and its objects.
#[derive(Default)]
pub(in crate::verbs) struct Events {
    /// Number of events so far.
    count: u64,
    /// The events that end links, oldest first.
    faults: Vec<(u64, Concerns, &'static str)>,
    /// The latest event of each explaining kind, oldest first.
    explanations: Vec<(u64, &'static str)>,
}

/// The objects that an event concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    All,
    /// The object at this address.
    One(usize),
}

/// A position in the list of events, for reading later ones.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::verbs) struct Since(u64);

/// The meaning of an event for links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    /// It ends the links that it concerns.
    Ends(&'static str),
    /// It explains the end of a link.
    Explains(&'static str),
}

impl Events {
    /// The position of later events.
    pub(in crate::verbs) fn now(&self) -> Since {
        Since(self.count)
    }

    /// Keeps an event, if it matters to links over the port of this number.
    pub(in crate::verbs) fn keep(&mut self, event: &ibv_async_event, port: u8) {
        let Some(meaning) = meaning(event.event_type) else { return };
        let Some(concerns) = concerned(event, port) else { return };
        match meaning {
            Meaning::Ends(what) => {
                if self.faults.len() == KEPT {
                    self.faults.remove(0);
                }
                self.faults.push((self.count, concerns, what));
            }
            Meaning::Explains(what) => {
                // Many events of one kind displace no other kind.
                self.explanations.retain(|(_, other)| *other != what);
                self.explanations.push((self.count, what));
            }
        }
        self.count += 1;
    }

    /// The first fault after `since` of the device or of the objects at these addresses.
    pub(in crate::verbs) fn fault(&self, since: Since, objects: &[usize]) -> Option<&'static str> {
        let mine = |concerns| match concerns {
            Concerns::All => true,
            Concerns::One(object) => objects.contains(&object),
        };
        let found = |(number, concerns, _): &&_| *number >= since.0 && mine(*concerns);
        self.faults.iter().find(found).map(|(_, _, what)| *what)
    }

    /// Returns whether the port went down after `since`.
    pub(in crate::verbs) fn went_down(&self, since: Since) -> bool {
        self.explanations.iter().any(|(number, what)| *number >= since.0 && *what == DOWN)
    }

    /// The latest event after `since` that explains the end of a link.
    pub(in crate::verbs) fn explanation(&self, since: Since) -> Option<&'static str> {
        self.explanations.last().filter(|(number, _)| *number >= since.0).map(|(_, what)| *what)
    }
}

/// The objects that an event concerns; `None` for an event of an unused port.
fn concerned(event: &ibv_async_event, port: u8) -> Option<Concerns> {
    match event.event_type {
        IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
            // SAFETY: events of queue pairs name one.
            Some(Concerns::One(unsafe { event.element.qp }.addr()))
        }
        // SAFETY: events of completion queues name one.
        IBV_EVENT_CQ_ERR => Some(Concerns::One(unsafe { event.element.cq }.addr())),
        IBV_EVENT_DEVICE_FATAL => Some(Concerns::All),
        // SAFETY: events of ports name one.
        _ => (unsafe { event.element.port_num } == c_int::from(port)).then_some(Concerns::All),
    }
}

fn meaning(event: ibv_event_type) -> Option<Meaning> {
    Some(match event {
        IBV_EVENT_DEVICE_FATAL => Meaning::Ends("the device failed or was removed"),
        IBV_EVENT_CQ_ERR => Meaning::Ends("a completion queue overran or failed"),
        IBV_EVENT_QP_FATAL => Meaning::Ends("the queue pair failed"),
        IBV_EVENT_QP_REQ_ERR => {
            Meaning::Ends("the peer sent a request that cannot be carried out, and the queue pair was shut")
        }
        IBV_EVENT_QP_ACCESS_ERR => Meaning::Ends(
            "the peer requested memory that it may not access (key, range or rights), and the queue pair was shut",
        ),
        IBV_EVENT_PORT_ERR => Meaning::Explains(DOWN),
        IBV_EVENT_GID_CHANGE => Meaning::Explains("the port's table of GIDs changed: connect again"),
        IBV_EVENT_LID_CHANGE => Meaning::Explains("the port's LID changed: connect again"),
        IBV_EVENT_PKEY_CHANGE => Meaning::Explains("the port's table of partitions changed: connect again"),
        IBV_EVENT_CLIENT_REREGISTER => Meaning::Explains(
            "the subnet manager started anew, and may have changed the paths: connect again",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use farjump_rdma_sys::{IBV_EVENT_COMM_EST, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_SM_CHANGE};

    use super::*;

    /// An event of a port, or of the object with this number.
    fn event(event_type: ibv_event_type, number: c_int) -> ibv_async_event {
        // SAFETY: numbers and pointers, for which zero is valid.
        let mut event: ibv_async_event = unsafe { std::mem::zeroed() };
        (event.event_type, event.element.port_num) = (event_type, number);
        event
    }

    #[test]
    fn events_that_end_links_are_explained_and_others_are_ignored() {
        for (event, said) in [
            // Soft-RoCE never reports this: its removal waits until no process has the device open.
            (IBV_EVENT_DEVICE_FATAL, "removed"),
            (IBV_EVENT_QP_FATAL, "queue pair failed"),
            (IBV_EVENT_CQ_ERR, "completion queue overran"),
        ] {
            assert!(matches!(meaning(event), Some(Meaning::Ends(text)) if text.contains(said)), "{event}");
        }
        for event in [IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST, IBV_EVENT_SM_CHANGE] {
            assert_eq!(meaning(event), None, "{event}");
        }
    }

    #[test]
    fn a_port_event_ends_no_link_and_explains_its_loss() {
        for (kind, said) in [
            (IBV_EVENT_PORT_ERR, "port went down"),
            (IBV_EVENT_GID_CHANGE, "GIDs"),
            (IBV_EVENT_LID_CHANGE, "LID"),
            (IBV_EVENT_PKEY_CHANGE, "partitions"),
            (IBV_EVENT_CLIENT_REREGISTER, "subnet manager"),
        ] {
            let mut events = Events::default();
            let since = events.now();
            events.keep(&event(kind, 2), 1);
            assert_eq!(events.explanation(since), None, "{kind} of another port");
            events.keep(&event(kind, 1), 1);
            assert_eq!(events.fault(since, &[1]), None, "{kind}");
            assert!(events.explanation(since).is_some_and(|text| text.contains(said)), "{kind}");
            assert_eq!(events.explanation(events.now()), None, "a link that was made later");
        }
    }

    #[test]
    fn a_storm_of_changes_drives_out_no_fault() {
        let mut events = Events::default();
        let since = events.now();
        events.keep(&event(IBV_EVENT_QP_FATAL, 7), 1);
        for _ in 0..KEPT * 2 {
            events.keep(&event(IBV_EVENT_GID_CHANGE, 1), 1);
        }
        assert_eq!(events.fault(since, &[7]), Some("the queue pair failed"));
        assert_eq!(events.fault(since, &[8]), None);
    }
}
