//! `ucx_perftest`, UCX's own tool: the comparison for the baseline over active messages.

use std::env;
use std::path::{Path, PathBuf};

use super::external_tool::{Tool, free_port};
use crate::perf::machine::Cpus;
use crate::perf::process::ports;
use crate::perf::report::metric::Metric;
use crate::program::failure::Failure;
use crate::program::workspace::Stage;

const PROGRAM: &str = "ucx_perftest";

/// Returns the tool of the measured UCX: the one installed with the library (`PREFIX/lib` and `PREFIX/bin`),
/// and then that library's folder. Without one, or if the library is the system's, it is the one in PATH.
fn tool() -> (Tool, Option<PathBuf>) {
    let folder = library().as_deref().and_then(Path::parent).map(Path::to_owned);
    let file = folder.as_deref().and_then(Path::parent).map(|prefix| prefix.join("bin").join(PROGRAM));
    // Another version's tool would not measure the named library.
    let is_named = env::var_os("FARJUMP_UCX").is_some_and(|named| !named.is_empty());
    let file = file.filter(|file| is_named || file.is_file());
    let folder = folder.filter(|_| file.is_some());
    (Tool { program: PROGRAM, file, package: "ucx-utils" }, folder)
}

#[cfg(feature = "ucx")]
fn library() -> Option<PathBuf> {
    crate::perf::experiments::baselines::ucx::library().map(Path::to_owned)
}

#[cfg(not(feature = "ucx"))]
fn library() -> Option<PathBuf> {
    None
}

/// Runs it once, with a server on the target's processor and a client on the source's. Returns the result in
/// the metric's unit: the median latency, or the overall result of the whole run.
///
/// # Errors
/// A sentence for the user, if it is not installed or fails.
pub(in crate::perf) fn run(
    stage: &Stage,
    metric: Metric,
    size: usize,
    iterations: u32,
    warmup: u32,
    cpus: Cpus,
) -> Result<f64, Failure> {
    let port = free_port()?;
    let test = if metric.streams() { "ucp_am_bw" } else { "ucp_am_lat" };
    let options = [
        ("-t", test.to_owned()),
        ("-s", size.to_string()),
        ("-n", iterations.to_string()),
        ("-w", warmup.to_string()),
        ("-p", port.to_string()),
    ];
    let mut arguments: Vec<_> =
        options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
    arguments.extend(["-f", "-v"].map(str::to_owned));
    let settings = ports::settings();
    let transports = settings.transports.map(|value| ("UCX_TLS", value));
    let devices = settings.devices.map(|value| ("UCX_NET_DEVICES", value.to_owned()));
    let (tool, folder) = tool();
    let libraries = folder.map(|folder| ("LD_LIBRARY_PATH", folder.display().to_string()));
    let variables: Vec<_> = transports.into_iter().chain(devices).chain(libraries).collect();
    tool.run(stage, cpus, port, &arguments, &variables, |text| result(text, metric))
}

/// Returns the result in the last line of its CSV: its columns are iterations, latencies (median, average,
/// overall; us), bandwidths (average, overall; MB/s), message rates (average, overall; 1/s).
fn result(text: &str, metric: Metric) -> Option<f64> {
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.rfind(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let numbers: Vec<f64> =
        line.split(',').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
    let [_, latency, _, _, _, bandwidth, _, rate] = numbers[..] else { return None };
    match metric {
        Metric::Latency => Some(latency),
        Metric::Rate => Some(rate / 1e6),
        Metric::Bandwidth => Some(bandwidth),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\niterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                        \x20500,0.186,0.189,0.190,40.27,40.28,5278510,5278511\n";

    #[test]
    fn the_figures_are_read_in_their_units() {
        assert_eq!(result(SAID, Metric::Latency), Some(0.186));
        assert_eq!(result(SAID, Metric::Bandwidth), Some(40.28));
        assert_eq!(result(SAID, Metric::Rate), Some(5.278511));
    }

    #[test]
    fn output_of_another_form_has_no_ucx_perftest_result() {
        for text in ["", "connect() failed\n", "20000,1,2\n", "20000,a,b,c,d,e,f,g\n"] {
            assert_eq!(result(text, Metric::Latency), None, "{text}");
        }
    }
}
