//! The parts of a first call: the time of compiling, and the time for which its source waits.

use std::time::{Duration, Instant};

use farjump::{Library, Link, Mode, WaitPolicy};
use indicatif::ProgressBar;

use super::Form;
use crate::perf::experiments::bitcode::{has_bitcode, takes_bitcode};
use crate::perf::experiments::setting::Setting;
use crate::perf::machine::pin;
use crate::perf::options::ifuncs;
use crate::perf::process::liveness::PATIENCE;
use crate::perf::report::Report;
use crate::perf::report::key::Key;
use crate::perf::report::progress::check_signals;
use crate::perf::report::row::Row;
use crate::perf::report::statistics::{Round, Series};
use crate::program::bundled_ifuncs::Source;
use crate::program::failure::Failure;

/// Steps of a round: first calls in each form, and for bitcode compiling, and taking a kept result.
pub(super) const STEPS: usize = if cfg!(feature = "bitcode") { 4 } else { 2 };

/// A part of a first call, and its time in each round.
struct Part {
    name: &'static str,
    form: Form,
    /// True if the result was kept from before.
    kept: bool,
    series: Series,
}

/// Measures the parts, and adds their rows, also those before a failure.
pub(super) fn run(setting: &Setting<'_>, bar: &ProgressBar, report: &mut Report) -> Result<(), Failure> {
    let rounds = setting.options.rounds as usize;
    let names: Vec<_> = (0..rounds).map(|number| format!("tsi{number}")).collect();
    let texts: Vec<_> = names.iter().zip(0..).map(|(name, number)| text(name, number)).collect();
    let sources: Vec<_> = names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    bar.set_message("building the functions of first calls");
    // A bar that was drawn often leaves a draw out, and the next one is far.
    bar.force_draw();
    let mut libraries = Vec::new();
    for some in sources.chunks(8) {
        libraries.extend(ifuncs::build_with(some, &["--bitcode"], setting.stage)?);
    }
    let mut parts = Vec::new();
    let missing = measure(setting, &libraries, &mut parts, bar).err();
    let row = |metric, form: Form| {
        Row { metric, unit: "us", subject: "farjump", ..Row::default() }.with(Key::Form, form.name())
    };
    for Part { name, form, kept, series } in &parts {
        let mode = if *kept { "kept" } else { "new" };
        report.rows.push(row(name, *form).with(Key::Mode, mode).beside(series, None));
    }
    check_signals()?;
    if let Some(why) = missing {
        report.rows.push(Row { missing: Some(why.to_string()), ..row("tsi-first", Form::Bitcode) });
    }
    Ok(())
}

/// Returns a counter that differs from all others.
fn text(name: &str, number: u32) -> String {
    format!(
        "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS({name})\nFARJUMP_IFUNC void {name}_main(void *p, size_t n, void *a)\n\
         {{ (void)p; (void)n; *(uint64_t *)a += {}; }}\n",
        number + 1
    )
}

fn add(
    parts: &mut Vec<Part>,
    name: &'static str,
    form: Form,
    kept: bool,
    time: Duration,
) -> Result<(), Failure> {
    let known = parts.iter().position(|part| (part.name, part.form, part.kept) == (name, form, kept));
    let index = match known {
        Some(index) => index,
        None => {
            parts.push(Part { name, form, kept, series: Series::new()? });
            parts.len() - 1
        }
    };
    parts[index].series.add(Round::of(time.as_secs_f64() * 1e6));
    Ok(())
}

/// Measures the first calls of native code and of bitcode, from injecting to the reply, and the parts of compiling.
/// Each call is in a target of this process that its own thread polls.
fn measure(
    setting: &Setting<'_>,
    libraries: &[Library],
    parts: &mut Vec<Part>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let folder = setting.stage.folder();
    let listen = |form: Form| {
        let count: &'static mut u64 = Box::leak(Box::new(0));
        let address = format!("unix:{}/first-{}", folder.display(), form.name());
        let target = farjump::Target::listen(&address).wait_policy(WaitPolicy::spin_only()).args(count);
        let target = match form {
            Form::Native => target,
            Form::Bitcode => has_bitcode().map(|()| takes_bitcode(target))?,
        };
        // Threads and processes that it starts run where it was started.
        setting.cpus.map_or(Ok(()), |cpus| pin(cpus.target))?;
        let target = target.build()?.spawn()?;
        setting.cpus.map_or(Ok(()), |cpus| pin(cpus.source))?;
        Ok::<_, Failure>((target, Link::builder(&address).wait_policy(WaitPolicy::spin_only()).connect()?))
    };
    let call = |link: &Link, library: &Library, mode: Mode| {
        link.set_mode(mode);
        let begun = Instant::now();
        link.inject(library, &[7; 8])?.wait(PATIENCE)?;
        Ok::<_, Failure>(begun.elapsed())
    };
    for form in [Form::Native, Form::Bitcode] {
        let (target, link) = listen(form)?;
        for (library, round) in libraries.iter().zip(1..) {
            begin(bar, &format!("first calls, {}", form.name()), round)?;
            add(parts, "tsi-first", form, false, call(&link, library, Mode::Cached)?)?;
            let placing = link.link_time(library, PATIENCE)?.unwrap_or_default();
            add(parts, "tsi-place", form, false, placing)?;
            // The same bytes again, which the target only compares.
            add(parts, "tsi-arrival", form, false, call(&link, library, Mode::Always)?)?;
            add(parts, "tsi-run", form, false, call(&link, library, Mode::Cached)?)?;
            bar.inc(1);
        }
        drop(link);
        target.stop()?;
    }
    compile(folder, libraries, parts, bar)
}

/// Shows the step that begins. The targets of this part end with this process alone, so each step looks for signals.
fn begin(bar: &ProgressBar, step: &str, round: usize) -> Result<(), Failure> {
    bar.set_message(format!("{step}, round {round}"));
    check_signals()
}

/// Measures the parts of compiling, for the first tier and the optimised one, and of getting a result that a folder
/// kept.
#[cfg(feature = "bitcode")]
fn compile(
    folder: &std::path::Path,
    libraries: &[Library],
    parts: &mut Vec<Part>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    use farjump_compiler::protocol::Tier;
    use farjump_compiler::{Compiler, Options};

    let compiler = || {
        let mut options = Options::default();
        options.cache = Some(folder.join("kept"));
        let mut compiler = Compiler::new(options);
        compiler.start(PATIENCE).map(|()| compiler).map_err(Failure::new)
    };
    let job = |compiler: &mut Compiler, tier: Tier, library: &Library| {
        let code = Form::Bitcode.code(library);
        let id = library.images().last().map(|image| image.id());
        let id = id.ok_or_else(|| Failure::new("the library has no bitcode"))?;
        let begun = Instant::now();
        compiler.submit(tier, id, &farjump_os::cpu::detected(), code).map_err(Failure::new)?;
        loop {
            if let Some(done) = compiler.poll().pop() {
                let compiled = done.result.map_err(|failed| Failure::new(failed.text))?;
                return Ok::<_, Failure>((compiled.times, begun.elapsed()));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new("the compiler does not answer"));
            }
        }
    };
    let form = Form::Bitcode;
    let mut own = compiler()?;
    for (library, round) in libraries.iter().zip(1..) {
        begin(bar, "compiling", round)?;
        let (times, _) = job(&mut own, Tier::First, library)?;
        for (name, time) in [
            ("tsi-fork", times.fork),
            ("tsi-parse", times.parse),
            ("tsi-compile", times.compile),
            ("tsi-link", times.link),
        ] {
            add(parts, name, form, false, time)?;
        }
        let (times, _) = job(&mut own, Tier::Optimised, library)?;
        add(parts, "tsi-optimise", form, false, times.compile)?;
        bar.inc(1);
    }
    // Another compiler, which has nothing in memory.
    let mut own = compiler()?;
    for (library, round) in libraries.iter().zip(1..) {
        begin(bar, "what was kept", round)?;
        let (_, all) = job(&mut own, Tier::Optimised, library)?;
        add(parts, "tsi-compile", form, true, all)?;
        bar.inc(1);
    }
    Ok(())
}

#[cfg(not(feature = "bitcode"))]
fn compile(_: &std::path::Path, _: &[Library], _: &mut Vec<Part>, _: &ProgressBar) -> Result<(), Failure> {
    Ok(())
}
