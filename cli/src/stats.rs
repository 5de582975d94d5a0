//! `stats`: shows the statistics of a running target.

use std::time::Duration;

use clap::Args;
use farjump::admin::{ObjectListing, SourceStats, TargetStats};
use serde_json::{Map, Value, json};

use crate::objects::listing;
use crate::report::{self, AdminOptions};
use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::units::{counted, microseconds, show_count, show_duration};

/// Show a target's statistics and its sources
///
/// Shows its CPU, links, frames, calls, refusals by cause, the code store, and the store of objects if it has one. A
/// line for each source has the bytes of its frames, its memory where that is limited, and whether its next frames wait
/// for code or for credit for a reply.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Counters begin at 0 when a target starts. It responds when the function that it is running has
returned. The bytes of frames are those that they took in their mailboxes. Small frames that come one
at a time lie far apart there. For the line on its objects (serve --objects), a target lists them all, as
for `farjump store`.

Examples:
  farjump stats --to unix:store.sock
  watch farjump stats --to unix:store.sock
  farjump stats --to unix:store.sock --json | jq .calls

docs/reference/json.md lists the output of --json.")]
pub(crate) struct Stats {
    #[command(flatten)]
    admin: AdminOptions,
}

pub(crate) fn run(arguments: &Stats) -> Result<(), Failure> {
    let admin = arguments.admin.admin()?;
    let stats = admin.stats()?;
    let objects = listing::of(&admin)?;
    let objects = objects.as_ref();
    report::print(arguments.admin.json, || as_json(&stats, objects), || as_text(&stats, objects))
}

fn as_text(stats: &TargetStats, objects: Option<&ObjectListing>) -> String {
    let count = show_count;
    let store = &stats.store;
    let mut rows = vec![
        ["target".to_owned(), format!("{} (pid {})", stats.program, stats.pid)],
        ["cpu".to_owned(), stats.cpu.to_string()],
        ["takes".to_owned(), report::takes(&stats.cpu).join(", ")],
        [
            "links".to_owned(),
            format!(
                "{} now, {} in all; {} rejected",
                count(stats.links),
                count(stats.links_made),
                counted(stats.sources_refused, "source")
            ),
        ],
        [
            "frames".to_owned(),
            format!("{}, which took {} B of their mailboxes", count(stats.frames), count(stats.bytes)),
        ],
        ["calls".to_owned(), format!("{}, {} of them forwarded", count(stats.calls), count(stats.forwarded))],
        ["refused".to_owned(), refusals(stats)],
        [
            "linked".to_owned(),
            format!(
                "{} in {}",
                counted(stats.images_linked, "image"),
                show_duration(Duration::from_nanos(stats.link_ns))
            ),
        ],
        [
            "store".to_owned(),
            format!(
                "{} of {}, {} B of {}; {} evicted",
                counted(store.images, "image"),
                at_most(store.capacity_images, ""),
                count(store.bytes),
                at_most(store.capacity_bytes, " B"),
                count(store.evictions)
            ),
        ],
        ["arena".to_owned(), format!("{} B of {} B", count(store.arena_used), count(store.arena_capacity))],
    ];
    if let Some(objects) = objects {
        rows.push(["objects".to_owned(), listing::summary(objects)]);
    }
    if stats.ucx_tcp {
        rows.push(["warning".to_owned(), ucx_tcp(stats.ucx_ports_closed_by.as_deref())]);
    }
    if stats.sources.is_empty() {
        rows.push(["sources".to_owned(), "none".to_owned()]);
        return output::table(&rows);
    }
    let mut sources =
        vec![["source", "pid", "path", "key", "rights", "bytes", "memory", "state"].map(String::from)];
    sources.extend(stats.sources.iter().map(as_row));
    format!("{}\n{}", output::table(&rows), output::table(&sources))
}

/// Returns the warning about a target that allows UCX's TCP, whose ports are closed in this way.
fn ucx_tcp(ports_closed_by: Option<&str>) -> String {
    match ports_closed_by {
        Some(way) => format!(
            "UCX's TCP is on (serve --ucx-tcp): a process that reaches its ports may write the target's memory; they are closed \
             ({way}) once the source is connected"
        ),
        None => "UCX's TCP is allowed (serve --ucx-tcp) and not used, as nothing closes its ports there: `farjump transports --ucx-tcp` \
                 on its machine says why"
            .to_owned(),
    }
}

fn at_most(limit: Option<u64>, unit: &str) -> String {
    limit.map_or_else(|| "any number".to_owned(), |limit| format!("{}{unit}", show_count(limit)))
}

/// Lists the causes of refusals that occurred.
fn refusals(stats: &TargetStats) -> String {
    let all: u64 = stats.refusals().map(|(_, frames)| frames).sum();
    let causes = stats.refusals().filter(|(_, frames)| *frames != 0);
    let causes: Vec<_> = causes.map(|(cause, frames)| format!("{} {cause}", show_count(frames))).collect();
    match all {
        0 => "no frames".to_owned(),
        _ => format!("{}: {}", counted(all, "frame"), causes.join(", ")),
    }
}

fn as_row(source: &SourceStats) -> [String; 8] {
    [
        source.program.clone(),
        source.pid.to_string(),
        source.path.clone(),
        source.key.clone().unwrap_or_else(|| "-".to_owned()),
        source.rights.to_string(),
        show_count(source.bytes),
        match source.memory {
            Some(memory) => format!("{} B of {} B", show_count(memory.used), show_count(memory.limit)),
            None => "no limit".to_owned(),
        },
        if source.waits { "waits" } else { "" }.to_owned(),
    ]
}

fn as_json(stats: &TargetStats, objects: Option<&ObjectListing>) -> Value {
    let refusals: Map<_, _> =
        stats.refusals().map(|(cause, frames)| (format!("{cause:?}"), frames.into())).collect();
    let sources: Vec<_> = stats
        .sources
        .iter()
        .map(|source| {
            json!({
                "program": source.program,
                "pid": source.pid,
                "path": source.path,
                "bytes": source.bytes,
                "memory_bytes": source.memory.map(|memory| memory.used),
                "memory_limit_bytes": source.memory.map(|memory| memory.limit),
                "waits": source.waits,
                "key": source.key,
                "rights": source.rights.names().collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "program": stats.program,
        "pid": stats.pid,
        // 64 random bits: many readers of JSON have numbers of fewer.
        "epoch": format!("{:016x}", stats.epoch),
        "links": stats.links,
        "links_made": stats.links_made,
        "links_ended": stats.links_ended,
        "sources_refused": stats.sources_refused,
        "frames": stats.frames,
        "bytes": stats.bytes,
        "calls": stats.calls,
        "forwarded": stats.forwarded,
        "refusals": refusals,
        "images_linked": stats.images_linked,
        "link_us": microseconds(Duration::from_nanos(stats.link_ns)),
        "store": {
            "images": stats.store.images,
            "bytes": stats.store.bytes,
            "capacity_images": stats.store.capacity_images,
            "capacity_bytes": stats.store.capacity_bytes,
            "evictions": stats.store.evictions,
            "room_used": stats.store.arena_used,
            "room": stats.store.arena_capacity,
        },
        "objects": objects.map(listing::summary_as_json),
        "sources": sources,
        "ucx_tcp": stats.ucx_tcp,
        "ucx_ports_closed_by": stats.ucx_ports_closed_by,
        "cpu": report::cpu(&stats.cpu),
    })
}

#[cfg(test)]
mod tests {
    use farjump::RefusalCause;

    use super::*;

    #[test]
    fn people_see_the_causes_that_there_were_and_programs_see_all() {
        let mut stats = TargetStats { refused: vec![0; RefusalCause::count()], ..TargetStats::default() };
        assert_eq!(refusals(&stats), "no frames");
        stats.refused[RefusalCause::Policy.index()] = 1;
        assert_eq!(refusals(&stats), "1 frame: 1 policy");
        stats.refused[RefusalCause::Stalled.index()] = 1200;
        assert_eq!(refusals(&stats), "1 201 frames: 1 200 unfinished frame, 1 policy");
        let refusals = &as_json(&stats, None)["refusals"];
        assert_eq!(refusals.as_object().map(Map::len), Some(RefusalCause::count()));
        assert_eq!((&refusals["Stalled"], &refusals["BadImage"]), (&1200.into(), &0.into()));
    }

    #[test]
    fn a_target_with_ucx_over_tcp_is_shown_with_what_that_opens() {
        let mut stats = TargetStats::default();
        assert!(!as_text(&stats, None).contains("warning"));
        assert_eq!(as_json(&stats, None)["ucx_tcp"], false);
        stats.ucx_tcp = true;
        for (way, shown) in
            [(None, "and not used"), (Some("filter"), "closed (filter)"), (Some("device"), "closed (device)")]
        {
            stats.ucx_ports_closed_by = way.map(str::to_owned);
            let text = as_text(&stats, None);
            assert!(text.contains(shown), "{text}");
            assert_eq!(text.contains("may write the target's memory"), way.is_some(), "{text}");
            let object = as_json(&stats, None);
            assert_eq!((&object["ucx_tcp"], &object["ucx_ports_closed_by"]), (&true.into(), &json!(way)));
        }
    }

    #[test]
    fn an_unlimited_store_shows_any_number_as_text_and_json_null() {
        let mut stats = TargetStats::default();
        stats.store.capacity_images = Some(0);
        assert!(
            as_text(&stats, None).contains("0 images of 0, 0 B of any number"),
            "{}",
            as_text(&stats, None)
        );
        assert_eq!(as_json(&stats, None)["store"]["capacity_bytes"], Value::Null);
    }
}
