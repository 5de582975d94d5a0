//! RDMA devices: their ports, and whether links work over them. A port is tried as a link would use it. Where
//! there is a device, this loads the verbs library.

use farjump_transports::verbs::{NodeError, PortReport};
use serde_json::Value;

use super::finding::{Finding, Verdict};
use crate::transports::rdma_ports;

const NAME: &str = "RDMA devices";

pub(super) fn look() -> Finding {
    judge(&rdma_ports::look())
}

fn judge(found: &[PortReport]) -> Finding {
    let usable = found.iter().filter(|port| port.usable.is_ok()).count();
    let text = found.iter().map(show).collect::<Vec<_>>().join("; ");
    let finding = match found.iter().find(|port| port.is_taken).or(found.first()) {
        None => {
            let means = "verbs-write and verbs-send need one; Soft-RoCE makes one of a network interface, to try them";
            Finding::new(NAME, Verdict::Note, "none", means)
                .mend("sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev INTERFACE")
        }
        Some(PortReport { usable: Ok(_), is_taken: true, .. }) => {
            Finding::new(NAME, Verdict::Ok, text, "verbs-write and verbs-send can use them")
        }
        Some(_) if usable != 0 => {
            let means = "verbs-write and verbs-send cannot use the one that FARJUMP_DEVICE or --device names";
            Finding::new(NAME, Verdict::Note, text, means)
        }
        Some(first) => {
            let finding =
                Finding::new(NAME, Verdict::Note, text, "verbs-write and verbs-send cannot use them");
            Finding { mend: mend(first), ..finding }
        }
    };
    finding
        .figure("usable_ports", usable)
        .figure("ports", found.iter().map(rdma_ports::as_json).collect::<Value>())
}

/// Describes a port, or the reason against it, in a few words.
fn show(port: &PortReport) -> String {
    let (name, state) = (rdma_ports::name(port), rdma_ports::state(port));
    match &port.usable {
        Ok(_) => format!("{name} {state}"),
        Err(why) => format!("{name} {state}: {why}"),
    }
}

/// Returns the command that makes a port usable, if one command does. Other fixes are part of the reason.
fn mend(port: &PortReport) -> Option<String> {
    match (&port.info.node, &port.info.interface) {
        (Err(NodeError::NoDriver), _) => Some("sudo modprobe ib_uverbs".to_owned()),
        (Err(NodeError::NoPermission { path, .. }), _) => Some(format!("sudo chmod 666 {}", path.display())),
        (Ok(_), Some(interface)) if port.info.state == "DOWN" => {
            Some(format!("sudo ip link set {interface} up"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transports::rdma_ports::tests::port;

    #[test]
    fn no_device_is_a_note_that_says_how_to_get_one() {
        let none = judge(&[]);
        assert_eq!((none.verdict, &*none.found), (Verdict::Note, "none"));
        assert!(none.mend.is_some_and(|mend| mend.contains("rdma link add rxe0")));
        assert_eq!(
            (&none.figures["usable_ports"], &none.figures["ports"]),
            (&0.into(), &Value::Array(vec![]))
        );
    }

    #[test]
    fn the_port_that_is_used_decides_and_every_other_one_is_shown() {
        let mut other = port(Some("no cable"));
        other.is_taken = false;
        let finding = judge(&[other, port(None)]);
        assert_eq!(finding.verdict, Verdict::Ok);
        assert_eq!(finding.found, "rxe0:1 active, Ethernet (eth0): no cable; rxe0:1 active, Ethernet (eth0)");
        assert_eq!(finding.figures["usable_ports"], 1);
        assert_eq!(finding.figures["ports"][0]["why"], "no cable");
        assert_eq!(judge(&[port(Some("no cable"))]).verdict, Verdict::Note);
        // A usable port does not help when the user names another one.
        let mut well = port(None);
        well.is_taken = false;
        for found in [vec![well.clone()], vec![port(Some("no cable")), well]] {
            let finding = judge(&found);
            assert_eq!(finding.verdict, Verdict::Note);
            assert!(finding.means.contains("FARJUMP_DEVICE"), "{}", finding.means);
        }
    }

    #[test]
    fn a_fault_that_one_command_mends_shows_that_command() {
        let mended = |node: Result<_, NodeError>, state: &str| {
            let mut port = port(Some("why"));
            (port.info.node, port.info.state) = (node, state.to_owned());
            judge(&[port]).mend
        };
        let path = || "/dev/infiniband/uverbs0".into();
        assert_eq!(mended(Ok(path()), "DOWN").as_deref(), Some("sudo ip link set eth0 up"));
        let forbidden = NodeError::NoPermission { path: path(), errno: rustix::io::Errno::ACCESS };
        assert_eq!(mended(Err(forbidden), "DOWN").as_deref(), Some("sudo chmod 666 /dev/infiniband/uverbs0"));
        assert_eq!(mended(Err(NodeError::NoDriver), "ACTIVE").as_deref(), Some("sudo modprobe ib_uverbs"));
        assert_eq!(mended(Err(NodeError::NoNode { path: path() }), "ACTIVE"), None);
        assert_eq!(mended(Ok(path()), "ACTIVE"), None);
    }
}
