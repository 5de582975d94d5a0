//! The ports of RDMA devices, as `transports` and `doctor` show them.

use farjump::core::mailbox::region_len;
use farjump::core::transport::OpenRequest;
use farjump::transports::TransportInfo;
use farjump_transports::verbs::{self, PortReport};
use serde_json::{Value, json};

use farjump_cli::program::output;

/// Bytes of memory to register for the probe: a mailbox of `farjump serve`.
const MAILBOX: usize = 4 << 20;

pub(crate) fn look() -> Vec<PortReport> {
    verbs::ports(&OpenRequest::new(region_len(MAILBOX), MAILBOX))
}

/// Reports a fault of the port that would be used as a fault of the transports that would use it.
pub(crate) fn correct(backends: &mut [TransportInfo], ports: &[PortReport]) {
    let taken = ports.iter().find(|port| port.is_taken);
    let Some(Err(why)) = taken.map(|port| &port.usable) else { return };
    for backend in backends.iter_mut().filter(|backend| is_user(backend) && backend.usable.is_ok()) {
        backend.usable = Err(why.clone());
    }
}

/// Returns whether a transport uses ports.
pub(crate) fn is_user(backend: &TransportInfo) -> bool {
    backend.name.starts_with("verbs-")
}

/// Returns the name of a port, as `--device` takes it.
pub(crate) fn name(port: &PortReport) -> String {
    format!("{}:{}", port.info.device, port.info.port)
}

pub(crate) fn state(port: &PortReport) -> String {
    let interface = port.info.interface.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    format!("{}, {}{interface}", port.info.state.to_lowercase(), port.info.link)
}

/// Renders a block for each port. Reasons for which `reported` returns true were printed above.
pub(crate) fn as_text(ports: &[PortReport], reported: impl Fn(&str) -> bool) -> String {
    let blocks: Vec<_> = ports.iter().map(|port| output::table(&rows(port, &reported))).collect();
    blocks.join("\n")
}

fn rows(port: &PortReport, reported: impl Fn(&str) -> bool) -> Vec<[String; 2]> {
    let row = |name: &str, text: String| [name.to_owned(), text];
    let marked = |is_used, is_offered| match () {
        () if is_used => ", which is used",
        () if is_offered => ", which a target offers, too",
        () => "",
    };
    let name = name(port) + marked(port.is_taken, !port.offered.is_empty());
    let mut rows = vec![row("device", name), row("state", state(port))];
    if port.info.lid != 0 {
        rows.push(row("LID", port.info.lid.to_string()));
    }
    let chosen = port.usable.as_ref().ok().map(|usable| usable.gid);
    for (place, gid) in port.info.gids.iter().enumerate() {
        let marked = marked(chosen == Some(gid.index), port.offered.contains(&gid.index));
        let title = if place == 0 { "GIDs" } else { "" };
        rows.push(row(title, format!("{}: {} ({}){marked}", gid.index, gid.address, gid.kind)));
    }
    if let Some(node) = port.info.memory_node {
        rows.push(row("memory node", node.to_string()));
    }
    if let Ok(node) = &port.info.node {
        rows.push(row("opened at", node.display().to_string()));
    }
    match &port.usable {
        Ok(usable) => {
            let text = format!("of up to {} bytes, in partition {:#06x}", usable.mtu, usable.partition);
            rows.push(row("packets", text));
        }
        Err(why) if reported(why) => rows.push(row("usable", "no (as above)".to_owned())),
        Err(why) => rows.push(row("usable", format!("no: {why}"))),
    }
    rows
}

pub(crate) fn as_json(port: &PortReport) -> Value {
    let gid = |gid: &verbs::GidInfo| json!({ "index": gid.index, "address": gid.address, "type": gid.kind });
    let usable = port.usable.as_ref();
    json!({
        "device": port.info.device,
        "port": port.info.port,
        "state": port.info.state,
        "network": port.info.link,
        "interface": port.info.interface,
        "lid": port.info.lid,
        "memory_node": port.info.memory_node,
        "gids": port.info.gids.iter().map(gid).collect::<Vec<_>>(),
        "node": port.info.node.as_ref().ok().map(|path| path.to_string_lossy()),
        "used": port.is_taken,
        "offered_gids": port.offered,
        "usable": usable.is_ok(),
        "why": usable.err(),
        "gid_index": usable.ok().map(|usable| usable.gid),
        "packet_bytes": usable.ok().map(|usable| usable.mtu),
        "partition": usable.ok().map(|usable| usable.partition),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use farjump_transports::verbs::{GidInfo, PortInfo, PortUse};

    use super::*;

    /// Returns a port of Ethernet, with or without a reason against it.
    pub(crate) fn port(why: Option<&str>) -> PortReport {
        let mut info = PortInfo::new("rxe0", 1);
        (info.state, info.link, info.interface) = ("ACTIVE".into(), "Ethernet".into(), Some("eth0".into()));
        info.node = Ok("/dev/infiniband/uverbs0".into());
        let usable = why.map_or(Ok(PortUse::new(1, 1024, 0xffff)), |why| Err(why.to_owned()));
        let mut report = PortReport::new(info, usable);
        (report.is_taken, report.offered) = (true, vec![1]);
        report
    }

    #[test]
    fn a_port_is_shown_with_properties_and_any_reason_against_it() {
        let expected = "\
device     rxe0:1, which is used
state      active, Ethernet (eth0)
opened at  /dev/infiniband/uverbs0
packets    of up to 1024 bytes, in partition 0xffff
";
        assert_eq!(as_text(&[port(None)], |_| false), expected);
        let mut infiniband = port(Some("no cable"));
        (infiniband.info.lid, infiniband.is_taken, infiniband.offered) = (7, false, Vec::new());
        let text = as_text(&[infiniband.clone()], |_| false);
        assert!(text.starts_with("device     rxe0:1\n") && text.contains("\nLID        7\n"), "{text}");
        let mut far = infiniband.clone();
        far.info.memory_node = Some(1);
        assert!(as_text(&[far], |_| false).contains("\nmemory node  1\n"));
        assert!(text.ends_with("usable     no: no cable\n"), "{text}");
        assert!(as_text(&[infiniband], |why| why == "no cable").ends_with("no (as above)\n"));
    }

    #[test]
    fn ports_and_gids_are_marked_as_used_or_also_offered() {
        let mut two = port(None);
        two.info.gids = [(1, "10.9.0.1"), (2, "10.77.0.1"), (3, "fe80::1")]
            .map(|(index, address)| GidInfo::new(index, address, "RoCE v2"))
            .to_vec();
        two.offered = vec![1, 2];
        let mut other = two.clone();
        other.is_taken = false;
        let text = as_text(&[two, other], |_| false);
        let (used, other) = text.split_once("\n\n").unwrap();
        assert!(used.starts_with("device     rxe0:1, which is used\n"), "{used}");
        assert!(other.starts_with("device     rxe0:1, which a target offers, too\n"), "{other}");
        for line in [
            "1: 10.9.0.1 (RoCE v2), which is used\n",
            "2: 10.77.0.1 (RoCE v2), which a target offers, too\n",
            "3: fe80::1 (RoCE v2)\n",
        ] {
            assert!(used.contains(line) && other.contains(line), "{text}");
        }
    }

    #[test]
    fn a_transport_is_not_usable_where_its_port_is_not() {
        let usable = |ports: &[PortReport]| {
            let mut backends = farjump::transports::available();
            // As on a machine where the port opens.
            let can = backends[0].usable.clone();
            backends.iter_mut().filter(|backend| is_user(backend)).for_each(|it| it.usable = can.clone());
            correct(&mut backends, ports);
            backends.into_iter().filter(is_user).map(|it| it.usable.map(|_| ())).collect::<Vec<_>>()
        };
        assert_eq!(usable(&[]), [Ok(()), Ok(())]);
        assert_eq!(usable(&[port(None)]), [Ok(()), Ok(())]);
        assert_eq!(
            usable(&[port(Some("no memory"))]),
            [Err("no memory".to_owned()), Err("no memory".to_owned())]
        );
        let mut other = port(Some("no cable"));
        other.is_taken = false;
        assert_eq!(usable(&[other, port(None)]), [Ok(()), Ok(())]);
    }

    #[test]
    fn the_json_is_the_object_that_programs_were_promised() {
        let expected = json!({
            "device": "rxe0", "port": 1, "state": "ACTIVE", "network": "Ethernet", "interface": "eth0", "lid": 0,
            "memory_node": null,
            "gids": [], "node": "/dev/infiniband/uverbs0", "used": true, "offered_gids": [1],
            "usable": true, "why": null, "gid_index": 1, "packet_bytes": 1024, "partition": 0xffff,
        });
        assert_eq!(as_json(&port(None)), expected);
        let broken = as_json(&port(Some("no cable")));
        assert_eq!((&broken["usable"], &broken["why"]), (&false.into(), &"no cable".into()));
        assert_eq!((&broken["gid_index"], &broken["packet_bytes"]), (&Value::Null, &Value::Null));
    }
}
