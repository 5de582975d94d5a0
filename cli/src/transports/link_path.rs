//! `transports --to`: the path to a target, and the reasons against the others.

use farjump::config::LinkConfig;
use farjump::{ArrivalRules, Cpu, Link, LinkPath, Rights};
use serde_json::{Value, json};

use super::Transports;
use crate::report;
use farjump_cli::program::config_arguments::Resolved;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::rust_names::in_flags;
use farjump_cli::program::units::show_limit;
use farjump_cli::query_link;

/// Connects, and shows the path.
pub(super) fn run(to: &str, arguments: &Transports, options: Resolved<LinkConfig>) -> Result<(), Failure> {
    let link = query_link::connect(options, "farjump transports", arguments.timeout, to)?;
    let found = LinkReport::of(&link);
    drop(link);
    report::print(arguments.json, || as_json(&found), || as_text(&found))
}

/// A link's report on itself and on its target.
pub(crate) struct LinkReport {
    path: LinkPath,
    peer: String,
    pid: u32,
    cpu: Cpu,
    largest: usize,
    rights: Rights,
}

impl LinkReport {
    pub(crate) fn of(link: &Link) -> LinkReport {
        let mut path = link.path();
        for passed in &mut path.passed_over {
            passed.why = in_flags(std::mem::take(&mut passed.why));
        }
        LinkReport {
            path,
            peer: link.peer().to_string(),
            pid: link.peer().pid,
            cpu: link.peer_cpu(),
            largest: link.max_frame(),
            rights: link.rights(),
        }
    }
}

/// Renders the path as rows of text.
pub(crate) fn as_text(found: &LinkReport) -> String {
    let LinkReport { path, peer, cpu, largest, rights, .. } = found;
    let row = |name: &str, text: String| [name.to_owned(), text];
    let mut rows = vec![
        row("target", peer.clone()),
        row("cpu", cpu.to_string()),
        row("takes", report::takes(cpu).join(", ")),
        row("rights", rights.to_string()),
        row("transport", path.transport.clone()),
        row("arrives by", format!("{}: {}", path.rule.describe(), in_words(path.rule))),
        row("mailbox", format!("frames of up to {}", show_limit(*largest))),
    ];
    if !path.route.over.is_empty() {
        rows.push(row("over", path.route.over.clone()));
    }
    rows.extend(path.route.notes.iter().map(|note| row("", note.clone())));
    for passed in &path.passed_over {
        let own = format!("{}: ", passed.transport);
        rows.push(row("not by", format!("{own}{}", passed.why.strip_prefix(&own).unwrap_or(&passed.why))));
    }
    output::table(&rows)
}

fn as_json(found: &LinkReport) -> Value {
    let LinkReport { path, peer, pid, cpu, largest, rights } = found;
    let passed_over: Vec<_> = path
        .passed_over
        .iter()
        .map(|passed| json!({ "transport": passed.transport, "why": passed.why }))
        .collect();
    json!({
        "target": peer,
        "pid": pid,
        "cpu": report::cpu(cpu),
        "rights": rights.names().collect::<Vec<_>>(),
        "transport": path.transport,
        "arrives_by": path.rule.describe(),
        "mailbox_frame_bytes": largest,
        "over": path.route.over,
        "notes": path.route.notes,
        "passed_over": passed_over,
    })
}

fn in_words(rule: ArrivalRules) -> &'static str {
    match rule {
        ArrivalRules::STORES => "plain stores into memory of both, the signal last",
        ArrivalRules::DELIVERED => "the transport hands over whole frames",
        ArrivalRules::IN_ORDER => "one write, whose last byte lands last",
        ArrivalRules::FENCED => "the frame, a fence, then the signal",
        ArrivalRules::WRITE_IMM => "one write, and a completion at the receiver",
        ArrivalRules::CHECKED => "one write, and a checksum",
        _ => "a rule of its own",
    }
}
