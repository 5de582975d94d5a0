//! Images compiled for one CPU: they use its features, name them, and run nowhere else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farjump_builder::inspect::{inspect, symbols};
use farjump_builder::{BuildError, BuildReport, Options, Supervisor, build, build_for_cpu};
use farjump_core::code::CodeKind;
use farjump_core::cpu::Cpu;
use farjump_core::image::{ImageView, Level, Machine, Platform};
use farjump_loader::{Arena, Library, Refused, Resolver, Store};
use farjump_os::cpu::detected;

use crate::fixture::{Fixture, Target, sample, works};

const SUM: &str = "#include <farjump_ifunc.h>
FARJUMP_COPY_ARGS(sum)
FARJUMP_IFUNC void sum_main(void *payload, size_t size, void *args)
{
    const float *values = payload;
    float sum = 0;
    (void)args;
    for (size_t i = 0; i < size / sizeof *values; i++) sum += values[i];
    farjump_reply(&sum, sizeof sum);
}
";

fn level(number: u8) -> Level {
    Level::new(Machine::X86_64, number).unwrap()
}

fn x86(number: u8, name: &str, features: &[&str]) -> Cpu {
    let of_level = Cpu::of_level(Machine::X86_64, level(number));
    let all = of_level.features().iter().map(String::as_str).chain(features.iter().copied());
    Cpu::new(Machine::X86_64, level(number), name, all).unwrap()
}

fn for_cpu(fixture: &Fixture, cpu: &Cpu, base: Options, input: PathBuf) -> Result<BuildReport, BuildError> {
    let Options { inputs, output, .. } = fixture.options("sum", &[input]);
    build(&Options { inputs, output, name: Some("sum".into()), cpu: Some(cpu.clone()), ..base })
}

fn needed(report: &BuildReport) -> &[String] {
    let exact = report.images.last().unwrap();
    let view = ImageView::new_checked(&exact.bytes).unwrap();
    assert!(view.features().eq(exact.features.iter().map(String::as_str)));
    assert_eq!(view.platform(), None);
    &exact.features
}

/// Options for each compiler for this machine that is installed.
fn compilers() -> impl Iterator<Item = Options> {
    let of = |cc: &str| Options { cc: Some(cc.to_owned()), ..Options::default() };
    ["cc", "clang"].into_iter().filter(|cc| works(cc)).map(of)
}

#[test]
fn an_image_for_this_cpu_stands_beside_the_baseline_and_runs_here() {
    let cpu = detected();
    let own = Platform::baseline(cpu.machine());
    let sources = Fixture::new();
    for (input, base) in [sources.write("sum.c", SUM), sample("rust/sum.rs")]
        .into_iter()
        .flat_map(|input| compilers().map(move |base| (input.clone(), base)))
    {
        let fixture = Fixture::new();
        let is_rust = input.extension().is_some_and(|extension| extension == "rs");
        let mut report = for_cpu(&fixture, &cpu, base, input).unwrap();
        let features = needed(&report).to_vec();
        for feature in &features {
            assert!(cpu.has(feature), "{feature}");
        }
        let of_level = Cpu::of_level(cpu.machine(), cpu.level());
        for feature in of_level.features() {
            assert!(features.contains(feature), "{feature}");
        }
        let library = Library::open(&report.library).unwrap();
        let [plain, exact] = library.images() else { panic!("two images: {report:?}") };
        assert_eq!((plain.platform(), exact.platform()), (Some(own), None));
        assert!(
            exact.features().eq(features.iter().map(String::as_str)) && plain.features().next().is_none()
        );
        assert_eq!(library.image_for_cpu(&cpu).unwrap().id(), exact.id());
        assert_eq!(library.image_for(cpu.platform()).unwrap().id(), plain.id());
        let lowest = Cpu::of_level(cpu.machine(), Level::BASELINE);
        assert_eq!(library.image_for_cpu(&lowest).unwrap().id(), plain.id());
        // The family contains only the images for platforms.
        let manifest = library.manifest().unwrap();
        assert_eq!(manifest.images(), [(CodeKind::Platform(own), plain.id())]);

        let inspected = inspect(&report.library).unwrap();
        assert_eq!(inspected.family, manifest.id().to_string());
        assert_eq!((&*inspected.images[1].level, &inspected.images[1].features), ("exact", &features));
        assert!(inspected.to_string().contains(&format!("\n  needs     {}\n", features.join("  "))));
        let labels: Vec<_> = symbols(&report.library).unwrap().into_iter().map(|one| one.platform).collect();
        assert_eq!(labels, [own.to_string(), format!("{own}:exact")]);

        if is_rust {
            // Rust code needs more symbols than these tests offer.
            continue;
        }
        report.images.swap(0, 1);
        let payload: Vec<u8> = [1.5_f32, 2.25, 4.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let mut sum = crate::fixture::FarjumpData::new(&[]);
        let reply = Target::new().run(&report, &payload, &mut sum);
        assert_eq!(reply, 7.75_f32.to_le_bytes());
    }
}

#[test]
fn a_target_without_a_feature_refuses_the_image() {
    if Machine::native() != Some(Machine::X86_64) {
        return eprintln!("skipped: the image is for x86-64");
    }
    let fixture = Fixture::new();
    let cpu = x86(3, "", &["avx512f"]);
    let report = for_cpu(&fixture, &cpu, Options::default(), sample("c/sum.c")).unwrap();
    assert!(needed(&report).contains(&"avx512f".to_owned()));
    let exact = report.images.last().unwrap();
    let lesser = Arc::new(x86(3, "", &[]));
    let mut store = Store::new(Arena::new(1 << 20).unwrap()).for_cpu(lesser);
    let refused = store.insert(&exact.bytes, exact.id, "sum", &Resolver::default()).unwrap_err();
    assert!(
        matches!(&refused, Refused::MissingFeatures { missing, .. } if missing == "the CPU feature avx512f")
    );
}

#[test]
fn features_that_are_unknown_or_imply_missing_ones_are_left_out() {
    if Machine::native() != Some(Machine::X86_64) {
        return eprintln!("skipped: the features are those of x86-64");
    }
    for base in compilers() {
        let fixture = Fixture::new();
        let needed =
            |cpu: &Cpu| needed(&for_cpu(&fixture, cpu, base.clone(), sample("c/sum.c")).unwrap()).to_vec();
        // No compiler knows them, or they are options that turn on no instructions.
        let words = ["aes", "no-such-feature", "32", "no-red-zone", "no-sse2", "red-zone"];
        // Options for other things, which have macros as features do.
        let with_macros = ["soft-float", "long-double-64", "long-double-128", "pascal-strings", "unicode"];
        let strange = x86(3, "no-such-cpu", &[&words[..], &with_macros].concat());
        let with_aes = x86(3, "", &["aes"]);
        assert_eq!(needed(&strange), with_aes.features());
        assert_eq!(needed(&x86(3, "", &["aes", "no-red-zone"])), with_aes.features());
        // Compilers turn on AVX2 with it, which this CPU lacks.
        assert_eq!(needed(&x86(2, "", &["avx512f", "aes"])), x86(2, "", &["aes"]).features());
        // A known name only affects tuning.
        assert_eq!(needed(&x86(2, "skylake-avx512", &[])), x86(2, "", &[]).features());
        // A CPU without a name, and with nothing beyond its level.
        assert_eq!(needed(&x86(0, "", &[])), x86(0, "", &[]).features());
    }
}

#[test]
fn other_machines_have_exact_images_too() {
    for (machine, name, features, gcc) in [
        (Machine::AARCH64, "neoverse-n1", &["lse", "dotprod", "no-such"][..], "aarch64-linux-gnu-gcc"),
        (Machine::RISCV, "", &["zba", "zbb"], "riscv64-linux-gnu-gcc"),
    ] {
        if Machine::native() == Some(machine) || !works(gcc) {
            continue;
        }
        let of_level = Cpu::of_level(machine, Level::BASELINE);
        let all = of_level.features().iter().map(String::as_str).chain(features.iter().copied());
        let cpu = Cpu::new(machine, Level::BASELINE, name, all).unwrap();
        let fixture = Fixture::new();
        let base = Options { target_ccs: vec![(machine, gcc.to_owned())], ..Options::default() };
        let report = for_cpu(&fixture, &cpu, base, sample("c/sum.c")).unwrap();
        // The other image is for the baseline of the CPU's machine, not of this one.
        assert_eq!(report.images[0].target, Platform::baseline(machine));
        let needed = needed(&report);
        assert!(
            needed.contains(&features[0].to_owned()) && needed.contains(&features[1].to_owned()),
            "{needed:?}"
        );
        assert!(!needed.contains(&"no-such".to_owned()));
        let library = Library::open(&report.library).unwrap();
        assert_eq!(library.image_for_cpu(&cpu).unwrap().platform(), None);
        assert!(library.image_for_cpu(&detected()).is_err());
    }
}

#[test]
fn the_carried_source_of_a_library_builds_the_same_image() {
    let folder = Fixture::new();
    let own = detected();
    let cpus = [(*own).clone(), Cpu::of_level(Machine::AARCH64, Level::BASELINE)];
    for (source, cpu) in [folder.write("sum.c", SUM), sample("rust/sum.rs")]
        .into_iter()
        .flat_map(|source| cpus.clone().map(|cpu| (source.clone(), cpu)))
    {
        let is_rust = source.extension().is_some_and(|extension| extension == "rs");
        if cpu.machine() != own.machine() && (is_rust || !works("aarch64-linux-gnu-gcc")) {
            continue;
        }
        let fixture = Fixture::new();
        let flags = vec!["-O2".to_owned()];
        let base = Options { carry_source: true, cflags: flags, ..Options::default() };
        let mut report = for_cpu(&fixture, &cpu, base, source).unwrap();
        let exact = report.images.pop().unwrap();
        // SAFETY: it was built from the samples and `SUM`.
        let loaded = unsafe { Library::load(&report.library) }.unwrap();
        for library in [Library::open(&report.library).unwrap(), loaded] {
            let carried = library.source().unwrap();
            let options = Options { name: Some("sum".to_owned()), ..Options::default() };
            let image = build_for_cpu(carried, &cpu, &options).unwrap();
            assert_eq!((image.id(), image.bytes()), (exact.id, &*exact.bytes));
            let supervisor = Supervisor::new(Duration::from_secs(3600)).unwrap();
            let supervised = Options { supervisor: supervisor.clone(), ..options.clone() };
            assert_eq!(build_for_cpu(carried, &cpu, &supervised).unwrap().id(), exact.id);
            supervisor.stop();
            let stopped = build_for_cpu(carried, &cpu, &supervised).unwrap_err();
            assert!(stopped.to_string().contains("the build was stopped"), "{stopped}");
            let late = Supervisor::new(Duration::ZERO).unwrap();
            let late = build_for_cpu(carried, &cpu, &Options { supervisor: late, ..options }).unwrap_err();
            assert!(late.to_string().contains("longer than 0ns"), "{late}");
        }
    }
}

#[test]
fn refusals_name_the_cpu() {
    let fixture = Fixture::new();
    let machine = if Machine::native() == Some(Machine::AARCH64) { Machine::RISCV } else { Machine::AARCH64 };
    let cpu = Cpu::new(machine, Level::BASELINE, "some-cpu", ["x"]).unwrap();
    let missing = Options {
        target_ccs: vec![(machine, "no-such-gcc".into())],
        targets: vec![Platform::baseline(Machine::native().unwrap())],
        ..Options::default()
    };
    let text = fixture.refusal(for_cpu(&fixture, &cpu, missing, sample("c/sum.c")));
    assert!(text.starts_with(&format!("for the CPU {cpu}: cannot run `no-such-gcc`: ")), "{text}");
    assert!(text.contains("Options::target_ccs"), "{text}");

    let unknown = Cpu::new(Machine(1), Level::BASELINE, "", ["x"]).unwrap();
    let base =
        Options { targets: vec![Platform::baseline(Machine::native().unwrap())], ..Options::default() };
    let text = fixture.refusal(for_cpu(&fixture, &unknown, base, sample("c/sum.c")));
    assert!(text.contains("farjump cannot build ifunc libraries"), "{text}");
}
