//! `transports`: the paths between two processes, and the reasons against the others.

pub(crate) mod link_path;
#[cfg(feature = "verbs")]
pub(crate) mod rdma_ports;

use std::time::Duration;

use clap::Args;
use farjump::ArrivalRules;
use farjump::config::LinkConfig;
use farjump::core::transport::Capabilities;
use farjump::transports::TransportInfo;
use farjump_transports::{BackendOptions, available_with};
use serde_json::{Value, json};

use crate::report;
use farjump_cli::program::config_arguments::ConfigArguments;
use farjump_cli::program::failure::Failure;
use farjump_cli::program::link_options::{QueryOptions, choose_device, parse_address};
use farjump_cli::program::output;
use farjump_cli::program::rust_names::in_flags;
use farjump_cli::program::units::{parse_duration, show_limit};

/// Show the paths of frames
///
/// Lists every transport, in this build or not: whether it is usable on this machine, or the reason against it and the
/// fix; its arrival rule; the largest frame. Then lists every port of an RDMA device: state, addresses, and whether a
/// trial link works over it. With --to it shows the path to that target, and the reasons against the others; without,
/// --transport names the only one to show.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Arrival rules:
  stores     plain stores into memory of both, the signal last
  delivered  the transport hands over whole frames
  in-order   one write, whose last byte lands last
  fenced     the frame, a fence, then the signal
  write-imm  one write, and a completion at the receiver
  checked    one write, and a checksum

Examples:
  farjump transports
  farjump transports --transport verbs-write --device mlx5_0:1
  farjump transports --to unix:store.sock --transport ucx

docs/reference/json.md lists the output of --json.")]
pub(crate) struct Transports {
    /// Connect to this target, unix:PATH, unix:@NAME or tcp:HOST:PORT, and show the path to it
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    link: ConfigArguments<LinkConfig, QueryOptions>,
    /// Time limit for connecting, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows every backend, in this build or not; or the path to a target.
pub(crate) fn run(arguments: &Transports) -> Result<(), Failure> {
    // Without a link the variable of the transport has no meaning.
    let ignored: &[_] = if arguments.to.is_none() { &["transport"] } else { &[] };
    let options = arguments.link.resolve_without_variables(ignored)?;
    choose_device(&options)?;
    if let Some(to) = &arguments.to {
        return link_path::run(to, arguments, options);
    }
    let LinkConfig { transport, ucx_tcp, .. } = options.config;
    let options = BackendOptions::new().with_ucx_tcp(ucx_tcp);
    let mut backends = match &transport {
        Some(name) => farjump_transports::meant(name, options).map_err(farjump::Error::from)?,
        None => available_with(options),
    };
    let ports = Ports::of(&mut backends);
    for why in backends.iter_mut().filter_map(|backend| backend.usable.as_mut().err()) {
        *why = in_flags(std::mem::take(why));
    }
    let for_programs = || backends.iter().map(|backend| as_json(backend, &ports)).collect();
    report::print(arguments.json, for_programs, || as_text(&backends, &ports))
}

/// Renders the transports as rows of text, and their ports.
fn as_text(backends: &[TransportInfo], ports: &Ports) -> String {
    let mut rows = vec![["transport", "built in", "usable", "arrives by", "largest", "on"].map(String::from)];
    for backend in backends {
        let mut row = as_row(backend);
        // A reason is printed once.
        if backend.usable.is_err() && rows.iter().any(|above| above[5] == row[5]) {
            row[5] = "(as above)".to_owned();
        }
        rows.push(row);
    }
    let mut text = output::table(&rows);
    if let Some((version, file)) = backends.iter().find_map(ucx_of) {
        text.push_str(&format!("\nUCX {version}: {file}\n"));
    }
    ports.append_to(&mut text, backends);
    text
}

/// Returns version and file of the UCX with which this transport was probed.
#[cfg(feature = "ucx")]
fn ucx_of(backend: &TransportInfo) -> Option<(String, String)> {
    let is_by_ucx = backend.name.starts_with("ucx-");
    let ucx = is_by_ucx.then(farjump_ucx_sys::Ucx::open)?.ok()?;
    Some((ucx.version().to_string(), ucx.file().display().to_string()))
}

#[cfg(not(feature = "ucx"))]
fn ucx_of(_: &TransportInfo) -> Option<(String, String)> {
    None
}

/// The ports that transports use, if one of those transports is shown.
#[cfg(feature = "verbs")]
struct Ports(Vec<farjump_transports::verbs::PortReport>);

#[cfg(feature = "verbs")]
impl Ports {
    /// Probes the ports, and corrects `backends` by the result.
    fn of(backends: &mut [TransportInfo]) -> Ports {
        let ports = if backends.iter().any(rdma_ports::is_user) { rdma_ports::look() } else { Vec::new() };
        rdma_ports::correct(backends, &ports);
        Ports(ports)
    }

    fn append_to(&self, text: &mut String, backends: &[TransportInfo]) {
        let reported = |why: &str| {
            backends.iter().any(|backend| backend.usable.as_ref().err().is_some_and(|it| it == why))
        };
        if !self.0.is_empty() {
            text.push('\n');
            text.push_str(&rdma_ports::as_text(&self.0, reported));
        }
    }

    fn complete(&self, object: &mut Value, backend: &TransportInfo) {
        if rdma_ports::is_user(backend) {
            object["ports"] = self.0.iter().map(rdma_ports::as_json).collect();
        }
    }
}

/// A build whose transports use no ports.
#[cfg(not(feature = "verbs"))]
struct Ports;

#[cfg(not(feature = "verbs"))]
impl Ports {
    fn of(_: &mut [TransportInfo]) -> Ports {
        Ports
    }

    fn append_to(&self, _: &mut String, _: &[TransportInfo]) {}

    fn complete(&self, _: &mut Value, _: &TransportInfo) {}
}

fn as_row(backend: &TransportInfo) -> [String; 6] {
    let yes_no = |yes| String::from(if yes { "yes" } else { "no" });
    let (arrival, largest, on) = match &backend.usable {
        Ok(can) => (rule(can).describe(), show_limit(can.max_frame), backend.reaches.to_owned()),
        Err(why) => (String::new(), String::new(), why.clone()),
    };
    let usable = backend.usable.is_ok();
    [backend.name.to_owned(), yes_no(backend.compiled), yes_no(usable), arrival, largest, on]
}

fn as_json(backend: &TransportInfo, ports: &Ports) -> Value {
    let mut object = json!({
        "transport": backend.name,
        "compiled": backend.compiled,
        "usable": backend.usable.is_ok(),
        "on": backend.reaches,
    });
    match &backend.usable {
        Ok(can) => {
            let rules: Vec<_> = can.arrival.iter().map(ArrivalRules::describe).collect();
            object["arrives_by"] = rule(can).describe().into();
            object["arrival_rules"] = rules.into();
            object["largest_bytes"] = can.max_frame.into();
            // All endpoints of farjump's own transports have a descriptor: the conformance suite checks it.
            object["sleeps"] = true.into();
        }
        Err(why) => object["why"] = why.as_str().into(),
    }
    if let Some((version, file)) = ucx_of(backend) {
        object["ucx"] = json!({ "version": version, "file": file });
    }
    if let Some(way) = backend.ports_closed_by {
        object["ucx"]["ports_closed_by"] = way.into();
    }
    ports.complete(&mut object, backend);
    object
}

/// Returns the arrival rule between two endpoints with these capabilities.
fn rule(can: &Capabilities) -> ArrivalRules {
    can.arrival.agree(can.arrival).unwrap_or(ArrivalRules::empty())
}
