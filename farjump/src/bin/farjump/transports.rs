//! `transports`: which paths there are between two processes, and why not the others.

use farjump::core::transport::{Capabilities, WakeSource};
use farjump::{ArrivalRules, BackendInfo, available};
use serde_json::{Value, json};

use crate::arguments::Transports;
use crate::failure::Failure;
use crate::quantity::show_limit;
use crate::{output, path};

/// Shows every backend, in this build or not; or the path to a target.
pub(crate) fn run(arguments: &Transports) -> Result<(), Failure> {
    if let Some(to) = &arguments.to {
        return path::run(to, arguments);
    }
    let backends = available();
    if arguments.json {
        let list: Vec<Value> = backends.iter().map(as_json).collect();
        return output::print_line(format_args!("{:#}", Value::Array(list)));
    }
    let mut rows = vec![["transport", "built in", "usable", "arrives by", "largest", "on"].map(String::from)];
    for backend in &backends {
        let mut row = as_row(backend);
        // A reason is read once.
        if backend.usable.is_err() && rows.iter().any(|above| above[5] == row[5]) {
            row[5] = "(as above)".to_owned();
        }
        rows.push(row);
    }
    output::print(output::table(&rows))?;
    #[cfg(feature = "verbs")]
    print_ports(&farjump_transports::verbs::ports())?;
    Ok(())
}

/// Shows the ports that transports over RDMA can use, where there are any.
#[cfg(feature = "verbs")]
fn print_ports(ports: &[farjump_transports::verbs::PortInfo]) -> Result<(), Failure> {
    if ports.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["device", "state", "network", "opened at", "GIDs"].map(String::from)];
    for port in ports {
        let gids: Vec<_> =
            port.gids.iter().map(|gid| format!("{} {} ({})", gid.index, gid.address, gid.kind)).collect();
        let node = match &port.node {
            Ok(path) => path.display().to_string(),
            Err(why) => why.clone(),
        };
        let device = format!("{}:{}", port.device, port.port);
        rows.push([device, port.state.to_lowercase(), port.link.clone(), node, gids.join(", ")]);
    }
    output::print(format!("\n{}", output::table(&rows)))
}

fn as_row(backend: &BackendInfo) -> [String; 6] {
    let yes_no = |yes| String::from(if yes { "yes" } else { "no" });
    let (arrival, largest, on) = match &backend.usable {
        Ok(can) => (rule(can).describe(), show_limit(can.max_frame), backend.reaches.to_owned()),
        Err(why) => (String::new(), String::new(), why.clone()),
    };
    let usable = backend.usable.is_ok();
    [backend.name.to_owned(), yes_no(backend.compiled), yes_no(usable), arrival, largest, on]
}

fn as_json(backend: &BackendInfo) -> Value {
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
            object["sleeps"] = (can.wake == WakeSource::Descriptor).into();
        }
        Err(why) => object["why"] = why.as_str().into(),
    }
    object
}

/// The rule that two sides with these capabilities would use.
fn rule(can: &Capabilities) -> ArrivalRules {
    can.arrival.agree(can.arrival).unwrap_or(ArrivalRules::empty())
}
