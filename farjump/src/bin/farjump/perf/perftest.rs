//! `ucx_perftest`, UCX's own tool: what our use of active messages is held against.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::options::{Cpus, Metric};
use crate::failure::Failure;
use crate::stage::Stage;

const PROGRAM: &str = "ucx_perftest";
/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is seen whether something is so.
const INTERVAL: Duration = Duration::from_millis(2);

/// Runs it once, with a server on the target's processor and a client on the source's. Returns the figure in the metric's unit:
/// the median latency, or what it calls overall of the whole run.
///
/// # Errors
/// When it is not installed or fails, a sentence for people.
pub(super) fn run(
    stage: &Stage,
    metric: Metric,
    size: usize,
    iterations: u32,
    warmup: u32,
    cpus: Cpus,
) -> Result<f64, Failure> {
    let port = free_port()?;
    let test = if metric.streams() { "ucp_am_bw" } else { "ucp_am_lat" };
    let command = |cpu: usize| {
        let mut command = Command::new(PROGRAM);
        for (option, value) in [
            ("-t", test.to_owned()),
            ("-s", size.to_string()),
            ("-n", iterations.to_string()),
            ("-w", warmup.to_string()),
            ("-p", port.to_string()),
            ("-c", cpu.to_string()),
        ] {
            command.arg(option).arg(value);
        }
        command.args(["-f", "-v"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = Running::start(stage, &mut command(cpus.target))?;
    let deadline = Instant::now() + PATIENCE;
    while !is_listening(port) {
        if server.has_ended()? || Instant::now() > deadline {
            return Err(Failure::new(format!("{PROGRAM} does not listen on port {port}")));
        }
        std::thread::sleep(INTERVAL);
    }
    let said = stage.folder().join("perftest");
    let out = fs::File::create(&said)
        .map_err(|error| Failure::new(format!("cannot write `{}`: {error}", said.display())))?;
    let mut client = Running::start(stage, command(cpus.source).arg("127.0.0.1").stdout(out))?;
    while !client.has_ended()? {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("{PROGRAM} did not end within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(INTERVAL);
    }
    drop(server);
    let text = fs::read_to_string(&said).unwrap_or_default();
    figure(&text, metric).ok_or_else(|| {
        Failure::new(format!("{PROGRAM} -t {test} said nothing that is understood: `{}`", text.trim()))
    })
}

/// The figure in the last line of its CSV: its columns are iterations, latencies (median, average, overall; us), bandwidths
/// (average, overall; MB/s), message rates (average, overall; 1/s).
fn figure(text: &str, metric: Metric) -> Option<f64> {
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.rfind(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let numbers: Vec<f64> =
        line.split(',').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
    let [_, latency, _, _, _, bandwidth, _, rate] = numbers[..] else { return None };
    match metric {
        Metric::Latency => Some(latency),
        Metric::Rate => Some(rate / 1e6),
        Metric::Bandwidth => Some(bandwidth),
        Metric::FirstCall | Metric::Work | Metric::Scaling | Metric::WakeUp | Metric::Idle => None,
    }
}

/// A port that nobody listens on just now.
fn free_port() -> Result<u16, Failure> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("there is no free port for {PROGRAM}: {error}")))
}

/// Whether somebody listens there. Looked up, because the server takes whoever connects for its client.
fn is_listening(port: u16) -> bool {
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some("0A")
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.lines().any(listens)))
}

/// A process that is ended with this value.
struct Running<'a> {
    stage: &'a Stage,
    child: Option<Child>,
    pid: Pid,
}

impl Running<'_> {
    fn start<'a>(stage: &'a Stage, command: &mut Command) -> Result<Running<'a>, Failure> {
        let child = stage.start(command).map_err(|error| {
            Failure::new(format!(
                "cannot run {PROGRAM}: {error}; it is in the package ucx-utils of Debian and Ubuntu"
            ))
        })?;
        let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| Failure::new("a process has no id"))?;
        Ok(Running { stage, child: Some(child), pid })
    }

    fn has_ended(&mut self) -> Result<bool, Failure> {
        // It is reaped by the stage alone, which has its id.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(ended) => Ok(ended.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Failure::new(format!("cannot wait for {PROGRAM}: {error}"))),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Not reaped yet, so the id is its own; the server may not have ended by itself.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.stage.finish(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\niterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                        \x20500,0.186,0.189,0.190,40.27,40.28,5278510,5278511\n";

    #[test]
    fn the_figures_are_read_in_their_units() {
        assert_eq!(figure(SAID, Metric::Latency), Some(0.186));
        assert_eq!(figure(SAID, Metric::Bandwidth), Some(40.28));
        assert_eq!(figure(SAID, Metric::Rate), Some(5.278511));
    }

    #[test]
    fn what_is_not_its_output_is_not_understood() {
        for text in ["", "connect() failed\n", "20000,1,2\n", "20000,a,b,c,d,e,f,g\n"] {
            assert_eq!(figure(text, Metric::Latency), None, "{text}");
        }
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_found() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }
}
