//! `perf --plot`: the contents of the picture, and the message where it cannot be written.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::measuring::{measuring, perf, start_run};
use crate::workbench::{Workbench, finish, kill};
use roxmltree::Document;
use rustix::process::{Signal, geteuid};

/// Returns the picture's text. Checks that all of it lies inside the picture.
fn labels(picture: &Document<'_>) -> BTreeSet<String> {
    let size: Vec<f64> = picture
        .root_element()
        .attribute("viewBox")
        .expect("it has a size")
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let texts = picture.descendants().filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| {
            for (name, most) in [("x", size[2]), ("y", size[3])] {
                let at: f64 = node.attribute(name).expect("it has a place").parse().expect("a number");
                // A point beyond the scale is drawn at the border.
                assert!((10.0..most - 10.0).contains(&at), "{node:?} lies outside");
            }
            node.text().unwrap_or_default().trim().to_owned()
        })
        .collect()
}

/// Counts the lines with this many points.
fn paths(picture: &Document<'_>, tag: &str, points: usize) -> usize {
    let paths = picture.descendants().filter(|node| node.has_tag_name(tag));
    paths
        .filter(|node| {
            let listed = node.attribute("points").expect("it has points");
            listed.split_whitespace().collect::<BTreeSet<_>>().len() == points
        })
        .count()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the picture is there")
}

#[test]
fn a_picture_has_a_curve_for_each_measured_series_and_ratio() {
    let Some(bench) = measuring() else { return };
    let args = ["latency", "--sizes", "8..64", "--mode", "cached,always", "--against", "raw,memcpy"];
    finish(perf(&bench, &args).args(["--plot", "latency.svg"])).worked();
    let text = read(&bench.path("latency.svg"));
    let picture = Document::parse(&text).expect("it is XML");
    // Two modes, two baselines, and the ratio of each mode to each baseline, over four sizes.
    assert_eq!(paths(&picture, "polyline", 4), 2 + 2 + 2 * 2, "{text}");
    assert!(text.contains("prefers-color-scheme: dark"), "{text}");
    let labels = labels(&picture);
    let named =
        ["one-way latency, \u{b5}s", "bytes of payload", "shm, cached", "shm, always", "raw", "memcpy"];
    for label in named.into_iter().chain(["8", "16", "32", "64"]) {
        assert!(labels.contains(label), "{label} is not in {labels:?}");
    }
}

#[test]
fn rate_bandwidth_and_first_call_are_drawn_over_an_existing_file() {
    let Some(bench) = measuring() else { return };
    for (metric, title) in [
        ("rate", "message rate, million/s"),
        ("bandwidth", "bandwidth, MB/s"),
        ("first-call", "first call, \u{b5}s"),
    ] {
        let path = bench.write("figure.SVG", "x".repeat(1 << 20));
        finish(perf(&bench, &[metric]).args(["--plot", "figure.SVG"])).worked();
        let text = read(&path);
        let picture = Document::parse(&text).expect("it is XML");
        assert!(labels(&picture).contains(title), "{text}");
    }
}

#[test]
fn a_png_is_white_with_the_same_curves_drawn_on_it() {
    let Some(bench) = measuring() else { return };
    finish(perf(&bench, &["rate", "--sizes", "8,16"]).args(["--plot", "rate.png"])).worked();
    let file = fs::File::open(bench.path("rate.png")).expect("the picture is there");
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().expect("it is PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it is no giant")];
    reader.next_frame(&mut pixels).expect("it is whole");
    assert_eq!(pixels[..3], [255; 3]);
    let blue = pixels.as_chunks::<3>().0.iter().filter(|pixel| **pixel == [0x00, 0x72, 0xB2]).count();
    assert!(blue > 100, "farjump's curve is not there: {blue}");
}

#[test]
fn a_picture_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let bench = Workbench::new();
    let refused = |file: &str, code: i32, part: &str| {
        let done = finish(perf(&bench, &["latency"]).args(["--plot", file]));
        assert!(done.error(code).contains(part), "{file}: {}", done.err);
        assert!(done.out.is_empty() && !bench.path(file).is_file(), "{file}");
    };
    for file in ["figure", "figure.pdf", "figure.svg.gz", ".svg"] {
        refused(file, 2, "end the name with .svg or .png");
    }
    refused("absent/figure.svg", 1, "there is no folder absent");
    fs::create_dir(bench.path("folder.svg")).expect("a folder can be made");
    refused("folder.svg", 1, "that is a folder");
}

#[test]
fn a_picture_in_an_unwritable_folder_is_refused_before_measuring() {
    if geteuid().is_root() {
        eprintln!("skipped: root may write everywhere");
        return;
    }
    let bench = Workbench::new();
    let folder = bench.path("others");
    fs::create_dir(&folder).expect("a folder can be made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).expect("it is this user's");
    let done = finish(perf(&bench, &["latency"]).args(["--plot", "others/figure.svg"]));
    done.fails(1, &["others cannot be written"]);
    assert!(done.out.is_empty());
}

#[test]
fn on_a_full_disk_rows_are_printed_and_the_picture_fails() {
    let Some(bench) = measuring() else { return };
    for file in ["full.svg", "full.png"] {
        symlink("/dev/full", bench.path(file)).expect("a link can be made");
        let done = finish(perf(&bench, &["latency"]).args(["--json", "--plot", file]));
        done.fails(1, &[file, "No space left on device"]);
        let report = done.json();
        assert!(report["rows"][0]["median"].is_number(), "{report:#}");
    }
}

#[test]
fn a_failed_run_is_drawn_as_far_as_it_was_measured() {
    let Some(bench) = measuring() else { return };
    let (run, other) = start_run(&bench, &["--plot", "half.svg"]);
    kill(other, Signal::KILL);
    let done = run.finish();
    done.error(done.code);
    assert!(done.code != 0 && !done.out.is_empty());
    let text = read(&bench.path("half.svg"));
    let labels = labels(&Document::parse(&text).expect("it is XML"));
    assert!(labels.contains("shm, cached") && labels.contains("raw"), "{labels:?}");
}
