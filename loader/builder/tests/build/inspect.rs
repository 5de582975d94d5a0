//! Inspecting reports the contents of a built library without loading it.

use std::fs;

use farjump_builder::build;
use farjump_builder::inspect::{InspectError, inspect};
use farjump_core::image::Machine;

use crate::fixture::{Fixture, sample};

#[test]
fn a_report_says_what_was_built() {
    let fixture = Fixture::new();
    let text = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(t)
FARJUMP_PAYLOAD_ALIGN(t, 256);
extern int table[8]; extern void maybe(void) __attribute__((weak));
static int *at = &table[3];
void t_main(void *p, size_t n, void *a) { (void)p; *(int *)a = *at++ + (int)n; if (maybe) maybe(); }";
    let built = fixture.c("t", text).unwrap();
    let report = inspect(&built.library).unwrap();
    assert_eq!(report.name, "t");
    assert_eq!(report.routines, ["t_main", "t_payload_get_max_size", "t_payload_init"]);
    let [image] = &report.images[..] else { panic!("{} images", report.images.len()) };
    let machine = Machine::native().unwrap();
    assert_eq!(image.machine, machine.triple());
    // Code for aarch64 reaches its statics by the addresses of pages.
    let align = if machine == Machine::AARCH64 { 4096 } else { 8 };
    assert_eq!((image.bytes, image.sizes), (built.images[0].bytes.len(), built.images[0].sizes));
    assert_eq!(image.id, built.images[0].id.to_string());
    assert_eq!((image.align, image.payload_align), (align, Some(256)));
    let imports: Vec<_> =
        image.imports.iter().map(|import| (&*import.name, import.addend, import.weak)).collect();
    assert_eq!(imports, [("maybe", 0, true), ("table", 12, false)]);
    assert!(image.imports[0].site.starts_with("span 1 + 0x") && image.imports[1].site == "span 2 + 0x0");

    let shown = report.to_string();
    for part in [
        &format!("{machine}   "),
        &format!("{} B", image.bytes),
        "  data 8",
        &image.id,
        "maybe (weak)  table+12",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["images"][0]["imports"][1]["addend"], 12);
    assert_eq!(json["images"][0]["sizes"]["text"], u64::from(built.images[0].sizes.text));
}

#[test]
fn files_that_are_no_ifunc_library_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let missing = inspect(fixture.path("nowhere.so")).unwrap_err();
    assert!(matches!(missing, InspectError::Unreadable { .. }), "{missing}");
    let text = inspect(fixture.write("text.so", "not a library")).unwrap_err();
    assert!(matches!(text, InspectError::NotALibrary { .. }), "{text}");
    fixture.run("gcc", &["-shared", "-fPIC", "-x", "c", "/dev/null", "-o", "plain.so"]);
    let plain = inspect(fixture.path("plain.so")).unwrap_err();
    assert!(matches!(plain, InspectError::NoBundle { .. }), "{plain}");
}

#[test]
fn inspecting_a_damaged_library_never_panics_and_a_truncated_one_fails() {
    let fixture = Fixture::new();
    let built = build(&fixture.options("hello", &[sample("c/hello.c")])).unwrap();
    let whole = fs::read(&built.library).unwrap();
    let damaged = fixture.path("damaged.so");
    let bundle = whole.windows(4).position(|bytes| bytes == b"FJB\x01").unwrap();
    let (mut refused, mut tried) = (0, 0);
    let headers = (0..64).chain(whole.len().saturating_sub(2048)..whole.len());
    for at in (bundle..bundle + 256).chain(headers.step_by(7)) {
        for value in [0, 0xff] {
            let mut bytes = whole.clone();
            if bytes[at] == value {
                continue;
            }
            bytes[at] = value;
            fs::write(&damaged, &bytes).unwrap();
            tried += 1;
            refused += usize::from(inspect(&damaged).is_err());
        }
    }
    assert!(refused > 50 && refused < tried, "{refused} of {tried} refused");
    for len in (0..whole.len()).step_by(511) {
        fs::write(&damaged, &whole[..len]).unwrap();
        assert!(inspect(&damaged).is_err(), "{len} of {} bytes", whole.len());
    }
}
