//! The programs of perftest, which measure RDMA devices: the baselines of transports over a device. They use
//! the device, port and GID that farjump uses, and spin as farjump does here.

use std::env;

use super::external_tool::{Tool, free_port};
use crate::perf::machine::Cpus;
use crate::perf::report::metric::{Against, Metric};
use crate::program::failure::Failure;
use crate::program::workspace::Stage;

/// Least number of repetitions that the programs accept.
const FEWEST: u32 = 5;

/// Returns whether a baseline, which is a program of perftest, is one for this transport: both have to use
/// the device in the same way.
pub(in crate::perf) fn is_for(program: Against, transport: &str) -> bool {
    match program {
        Against::IbWriteLat => transport != "verbs-send",
        Against::IbSendLat => transport != "verbs-write",
        _ => true,
    }
}

/// Runs a program once, with a server on the target's processor and a client on the source's. Returns the
/// result in the metric's unit: the typical latency one way, which is a median, or the average bandwidth or
/// rate.
///
/// # Errors
/// A sentence for the user, if it is not installed or fails, or there is no device.
pub(in crate::perf) fn run(
    program: Against,
    stage: &Stage,
    metric: Metric,
    size: usize,
    iterations: u32,
    cpus: Cpus,
) -> Result<f64, Failure> {
    let tool = Tool { program: program.name(), file: None, package: "perftest" };
    if size == 0 {
        return Err(Failure::new(format!("{} has no messages without a payload", tool.program)));
    }
    let (device, port, gid) = port_in_use()?;
    let listens = free_port()?;
    let options = [
        ("-d", device),
        ("-i", port.to_string()),
        ("-x", gid.to_string()),
        ("-s", size.to_string()),
        ("-n", iterations.max(FEWEST).to_string()),
        ("-p", listens.to_string()),
    ];
    let mut arguments: Vec<_> =
        options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
    // Accepts a changing frequency.
    arguments.push("-F".to_owned());
    tool.run(stage, cpus, listens, &arguments, &[], |text| result(text, metric, size))
}

/// Returns the default baselines for these transports: the program that uses a device as the transport does,
/// if it is installed, otherwise the default of the metric.
pub(in crate::perf) fn usual(metric: Metric, transports: &[String]) -> Vec<Against> {
    let of = |transport: &str| match (metric, transport) {
        (Metric::Latency, "verbs-write") => Against::IbWriteLat,
        (Metric::Latency, "verbs-send") => Against::IbSendLat,
        (Metric::Bandwidth, "verbs-write" | "verbs-send") => Against::IbWriteBw,
        _ => metric.usual(),
    };
    let is_there = |against: &Against| !against.is_of_perftest() || is_installed(against.name());
    let mut usual = Vec::new();
    for transport in transports {
        let against = Some(of(transport)).filter(is_there).unwrap_or(metric.usual());
        if !usual.contains(&against) {
            usual.push(against);
        }
    }
    if usual.is_empty() {
        usual.push(metric.usual());
    }
    usual
}

/// Returns whether PATH has a program of this name.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns device, port and GID index of farjump's links.
#[cfg(feature = "verbs")]
fn port_in_use() -> Result<(String, u8, u8), Failure> {
    let port = farjump_transports::verbs::port_in_use().map_err(Failure::new)?;
    Ok((port.device, port.port, port.gid))
}

#[cfg(not(feature = "verbs"))]
fn port_in_use() -> Result<(String, u8, u8), Failure> {
    Err(Failure::new(crate::perf::not_built_with("verbs")))
}

/// Returns the result in the table at the end of the output: in the line of this size, below the heads.
fn result(text: &str, metric: Metric, size: usize) -> Option<f64> {
    let head = match metric {
        Metric::Latency => "t_typical[usec]",
        Metric::Bandwidth => "BW average[MB/sec]",
        Metric::Rate => "MsgRate[Mpps]",
        _ => return None,
    };
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let heads = heads(lines.next()?);
    let column = heads.iter().position(|known| known == head)?;
    let cells = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.first().is_some_and(|first| first.parse() == Ok(size)))?;
    // With another number of cells the columns do not match the heads.
    if cells.len() != heads.len() {
        return None;
    }
    cells[column].parse().ok().filter(|result: &f64| result.is_finite() && *result > 0.0)
}

/// Returns the heads of a table. A head may contain spaces, and ends with its unit if it has one.
fn heads(line: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut begun = String::new();
    for word in line.split_whitespace() {
        if !begun.is_empty() {
            begun.push(' ');
        }
        begun += word;
        if word.starts_with('#') || word.ends_with(']') {
            heads.push(std::mem::take(&mut begun));
        }
    }
    if !begun.is_empty() {
        heads.push(begun);
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `ib_write_lat` of perftest 4.5 over Soft-RoCE, at the client.
    const LATENCY: &str = "\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: OFF
 ibv_wr* API     : OFF
 TX depth        : 1
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0014 PSN 0x757618 RKey 0x00052e VAddr 0x00561b6bd1b000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
 remote address: LID 0000 QPN 0x0013 PSN 0xad9016 RKey 0x000442 VAddr 0x0056533477a000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       500          15.61          272.57       17.85    \t       20.03       \t13.43  \t\t125.56  \t\t272.57 
---------------------------------------------------------------------------------------
";
    /// Output of `ib_write_bw`, likewise, from the GIDs on.
    const BANDWIDTH: &str = "\
 remote address: LID 0000 QPN 0x0011 PSN 0x3b6252 RKey 0x00029a VAddr 0x007f2e2291e000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      20               20.27              20.27  \t\t   0.000324
---------------------------------------------------------------------------------------
";

    #[test]
    fn the_figures_are_those_below_their_heads() {
        assert_eq!(result(LATENCY, Metric::Latency, 2), Some(17.85));
        assert_eq!(result(BANDWIDTH, Metric::Bandwidth, 65536), Some(20.27));
        assert_eq!(result(BANDWIDTH, Metric::Rate, 65536), Some(0.000324));
    }

    #[test]
    fn output_of_another_metric_or_size_or_garbage_has_no_result() {
        assert_eq!(result(LATENCY, Metric::Latency, 8), None, "another size");
        assert_eq!(result(LATENCY, Metric::Bandwidth, 2), None, "another metric");
        let (heads, row) = LATENCY.split_once(" 2       500").expect("it has a row");
        for garbage in ["", "Couldn't connect to 127.0.0.1:18515\n", heads, row] {
            assert_eq!(result(garbage, Metric::Latency, 2), None, "{garbage}");
        }
        for cells in ["17.85", "0.00 ", "nan  ", "-3.00", "x    "] {
            let text = LATENCY.replace("17.85", cells);
            assert_eq!(result(&text, Metric::Latency, 2).is_some(), cells == "17.85", "{cells}");
        }
        let short = LATENCY.replace("125.56", "");
        assert_eq!(result(&short, Metric::Latency, 2), None, "a cell is missing");
    }

    #[test]
    fn each_program_is_for_transports_that_use_a_device_as_it_does() {
        assert!(is_for(Against::IbWriteLat, "verbs-write") && !is_for(Against::IbWriteLat, "verbs-send"));
        assert!(is_for(Against::IbSendLat, "verbs-send") && !is_for(Against::IbSendLat, "verbs-write"));
    }

    #[test]
    fn without_a_device_transport_the_usual_reference_is_that_of_the_metric() {
        assert_eq!(usual(Metric::Latency, &["shm".to_owned(), "shm".to_owned()]), [Against::Raw]);
        assert_eq!(usual(Metric::Bandwidth, &[]), [Against::Memcpy]);
        let expected = match is_installed("ib_write_lat") {
            true => vec![Against::Raw, Against::IbWriteLat],
            false => vec![Against::Raw],
        };
        assert_eq!(usual(Metric::Latency, &["shm".to_owned(), "verbs-write".to_owned()]), expected);
    }
}
