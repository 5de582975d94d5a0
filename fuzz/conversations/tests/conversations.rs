//! Conversations from seeds, in processes of their own. The report of a conversation that crashes, hangs or fails has
//! its seed and its necessary steps.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farjump_conversations::conversation::{Holdings, Outcome, talk_to_target};
use farjump_conversations::errands::{self, run_errands};
use farjump_conversations::misled::{Script, talk_to_source};
use farjump_conversations::step::{Settings, steps};
use farjump_conversations::stores::{self, share_store};
use farjump_fixtures::allocation::{Counting, is_counting, most_at_once};
use fastrand::Rng;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The variable with the first seed, a number. Without it each run draws another one.
const SEED: &str = "FARJUMP_FUZZ_SEED";
/// The variable with the number of conversations.
const RUNS: &str = "FARJUMP_FUZZ_RUNS";
/// The variable that makes this process itself run conversations, for debuggers. Its value is a list of the steps to
/// leave out, or empty.
const HERE: &str = "FARJUMP_FUZZ_HERE";
/// The variable with the seconds for finding the necessary steps of a conversation that fails: 60 unless set.
const SHRINK: &str = "FARJUMP_FUZZ_SHRINK";
/// The variable with the kind of conversations whose kept seeds come first.
const KEPT: &str = "FARJUMP_FUZZ_KEPT";
/// Seeds that find mended faults, each behind the kind of its conversation and the fault.
const SEEDS: &str = include_str!("../seeds");
/// Time after which one conversation counts as hanging. It takes some hundredths of a second.
const LONGEST: Duration = Duration::from_secs(120);
/// Time within which the last descriptors of a conversation have to be closed.
const CLOSING: Duration = Duration::from_secs(10);
/// Seconds for finding the necessary steps.
const SHRINKING: u64 = 60;
/// Most heap memory that the thread of a conversation holds at once, including the hostile peer's.
const MOST_MEMORY: usize = 32 << 20;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is {value:?}: it must be a number")))
}

/// The kept seeds of this kind.
fn kept(kind: &str) -> Vec<u64> {
    let of_kind = SEEDS.lines().filter_map(|line| line.strip_prefix(kind)?.split(' ').nth(2)?.parse().ok());
    if kind.is_empty() { Vec::new() } else { of_kind.collect() }
}

/// Returns the steps that are not left out.
fn left<T>(steps: Vec<T>, left_out: &[usize]) -> Vec<T> {
    let steps = steps.into_iter().enumerate();
    steps.filter(|(at, _)| !left_out.contains(at)).map(|(_, step)| step).collect()
}

/// Executes the conversation of a seed without some of its steps.
fn to_target(seed: u64, left_out: &[usize], described: bool) -> (String, Depth) {
    let mut rng = Rng::with_seed(seed);
    let settings = Settings::new(&mut rng);
    let all = steps(&mut rng, &settings);
    let steps = left(all, left_out);
    if described {
        println!("{settings:?}");
        steps.iter().for_each(|step| println!("    {step:?}"));
    }
    let (outcome, memory) = most_at_once(|| talk_to_target(seed, &settings, &steps));
    assert!(memory <= MOST_MEMORY, "the conversation took {memory} bytes");
    let Outcome {
        links,
        streams,
        replies,
        calls,
        refused,
        honest,
        placed,
        responses,
        taken,
        summed,
        causes,
        ..
    } = outcome;
    // With less than these averages a conversation tests little behind a handshake. One in eight has checksums.
    let depth = vec![
        Figure("links", links, 1.5),
        Figure("streams", streams, 0.1),
        Figure("replies", replies, 0.7),
        Figure("calls", calls, 3.0),
        Figure("refused", refused, 5.0),
        Figure("honest", honest, 1.5),
        Figure("placed", placed, 1.5),
        Figure("responses", responses, 0.1),
        Figure("taken", taken, 5.0),
        Figure("summed", summed, 1.0),
    ];
    let described = format!("{} steps, {outcome:?}", steps.len());
    (described, Depth { figures: depth, causes })
}

fn to_source(seed: u64, left_out: &[usize], described: bool) -> (String, Depth) {
    let mut script = Script::new(&mut Rng::with_seed(seed));
    script.turns = left(script.turns, left_out);
    if described {
        println!("{script:?}");
    }
    let ((well, ill), memory) = most_at_once(|| talk_to_source(seed, &script));
    assert!(memory <= MOST_MEMORY, "the conversation took {memory} bytes");
    let described = format!("{} turns, {well} acts went well and {ill} did not", script.turns.len());
    (described, Depth { figures: vec![Figure("well", well, 1.0), Figure("ill", ill, 1.0)], causes: 0 })
}

fn of_errands(seed: u64, left_out: &[usize], described: bool) -> (String, Depth) {
    let mut script = errands::Script::new(&mut Rng::with_seed(seed));
    script.steps = left(script.steps, left_out);
    if described {
        println!("{script:?}");
    }
    let (outcome, memory) = most_at_once(|| run_errands(&script));
    assert!(memory <= MOST_MEMORY, "the conversation took {memory} bytes");
    let errands::Outcome { done, replies, failed, responses } = outcome;
    let figures = vec![
        Figure("done", done, 20.0),
        Figure("replies", replies, 1.0),
        Figure("failed", failed, 0.3),
        Figure("responses", responses, 0.1),
    ];
    (format!("{} steps, {outcome:?}", script.steps.len()), Depth { figures, causes: 0 })
}

fn of_a_store(seed: u64, left_out: &[usize], described: bool) -> (String, Depth) {
    let mut script = stores::Script::new(&mut Rng::with_seed(seed));
    script.steps = left(script.steps, left_out);
    if described {
        println!("{script:?}");
    }
    let (outcome, memory) = most_at_once(|| share_store(seed, &script));
    assert!(memory <= MOST_MEMORY, "the conversation took {memory} bytes");
    let stores::Outcome { granted, compared, refused, recalled, ended, entries } = outcome;
    let figures = vec![
        Figure("granted", granted, 8.0),
        Figure("compared", compared, 50.0),
        Figure("refused", refused, 1.0),
        Figure("recalled", recalled, 0.1),
        Figure("ended", ended, 0.5),
        Figure("entries", entries, 0.3),
    ];
    (format!("{} steps, {outcome:?}", script.steps.len()), Depth { figures, causes: 0 })
}

/// A counter, and its least average for each conversation.
struct Figure(&'static str, u64, f64);

/// The depth of a conversation.
struct Depth {
    figures: Vec<Figure>,
    /// Refusals by cause: each is a bit.
    causes: u64,
}

impl Depth {
    fn add(&mut self, other: &Depth) {
        if self.figures.is_empty() {
            self.figures =
                other.figures.iter().map(|Figure(name, _, least)| Figure(name, 0, *least)).collect();
        }
        self.figures.iter_mut().zip(&other.figures).for_each(|(figure, other)| figure.1 += other.1);
        self.causes |= other.causes;
    }

    /// Checks the depth, so that it shows if a change ends all conversations early, such as a change of the
    /// handshake.
    fn check(&self, runs: u64, causes: u32) {
        for Figure(name, sum, least) in &self.figures {
            assert!(
                *sum as f64 >= least * runs as f64,
                "{runs} conversations came to {name}: {sum}, and should to {least} each: they end early"
            );
        }
        let came = self.causes.count_ones();
        assert!(came >= causes, "there were refusals of {came} causes, and should be of {causes}");
    }
}

type Carry = fn(u64, &[usize], bool) -> (String, Depth);

/// Plays the child: executes `runs` conversations, and prints its progress.
fn play(carry: Carry, (enough, causes): (u64, u32), left_out: &str) {
    assert!(is_counting(), "memory is not counted");
    let (seed, runs) = (number(SEED).unwrap_or(0), number(RUNS).unwrap_or(1));
    let left_out: Vec<usize> = left_out.split(',').filter_map(|step| step.parse().ok()).collect();
    // Things that are made once stay: the functions, and memory kept by the C library.
    carry(seed, &left_out, runs == 1);
    // Other threads close the peers' descriptors a moment later.
    std::thread::sleep(Duration::from_millis(200));
    let before = Holdings::now();
    let mut depth = Depth { figures: Vec::new(), causes: 0 };
    for seed in kept(&std::env::var(KEPT).unwrap_or_default()).into_iter().chain(seed..seed + runs) {
        println!("\nseed {seed}");
        let (said, reached) = carry(seed, &left_out, false);
        depth.add(&reached);
        let until = Instant::now() + CLOSING;
        while !Holdings::now().is_within(before) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = Holdings::now();
        assert!(
            after.is_within(before),
            "something of the conversation is left: {after:?} after {before:?}: {:?}",
            Holdings::open()
        );
        println!("\ndone {seed}: {said}");
    }
    let figures: Vec<_> = depth.figures.iter().map(|Figure(name, sum, _)| format!("{name} {sum}")).collect();
    println!("\ndepth: {}, causes {}", figures.join(", "), depth.causes.count_ones());
    // With fewer runs the averages depend on chance.
    if runs >= enough {
        depth.check(runs, causes);
    }
}

/// The result of a child.
enum Fared {
    Well(Vec<String>),
    /// The seed, and its last output.
    Ill(u64, String),
}

fn child(test: &str, kind: &str, seed: u64, runs: u64, left_out: &str) -> Fared {
    let program = std::env::current_exe().expect("this program");
    let mut child = Killed(
        Command::new(program)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(SEED, seed.to_string())
            .env(RUNS, runs.to_string())
            .env(HERE, left_out)
            .env(KEPT, kind)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process"),
    );
    let (lines, came) = mpsc::channel();
    let outputs: [Box<dyn std::io::Read + Send>; 2] =
        [Box::new(child.0.stdout.take().expect("piped")), Box::new(child.0.stderr.take().expect("piped"))];
    for output in outputs {
        let lines = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
    }
    drop(lines);
    let (mut now, mut said, mut done) = (seed, Vec::new(), Vec::new());
    loop {
        match came.recv_timeout(LONGEST) {
            Ok(line) => {
                if let Some(seed) = line.strip_prefix("seed ").and_then(|seed| seed.parse().ok()) {
                    (now, said) = (seed, Vec::new());
                } else if line.starts_with("done ") {
                    done.push(line);
                } else if line.starts_with("depth: ") {
                    println!("{line}");
                } else if !line.is_empty() {
                    said.push(line);
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Fared::Ill(now, format!("it hangs\n{}", said.join("\n")));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.0.wait().expect("it was started");
    let all = done.len() as u64 == runs + kept(kind).len() as u64;
    // The failure is not of one conversation, so there is none to repeat.
    assert!(status.success() || !all, "from {SEED}={seed}: {status}\n{}", said.join("\n"));
    match all {
        true => Fared::Well(done),
        false => Fared::Ill(now, format!("{status}\n{}", said.join("\n"))),
    }
}

/// A child that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Executes conversations: the kept ones of this kind, if there are any, and then others.
fn fuzz(test: &str, kind: &str, carry: Carry, runs: u64, causes: u32) {
    if let Ok(left_out) = std::env::var(HERE) {
        return play(carry, (runs, causes), &left_out);
    }
    let kind = if number(SEED).or(number(RUNS)).is_none() { kind } else { "" };
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..1 << 48));
    println!("{SEED}={seed}");
    let (seed, why) = match child(test, kind, seed, number(RUNS).unwrap_or(runs), "") {
        Fared::Well(done) => return println!("{}", done.join("\n")),
        Fared::Ill(seed, why) => (seed, why),
    };
    // Leaves out steps as long as the conversation still fails: first many at a time, then one.
    let begun = Instant::now();
    let shrinking = Duration::from_secs(number(SHRINK).unwrap_or(SHRINKING));
    let (mut left_out, mut described, mut width): (Vec<usize>, _, _) = (Vec::new(), why.clone(), 16);
    while width > 0 {
        for start in (0..160).step_by(width) {
            if (start..start + width).all(|step| left_out.contains(&step)) {
                continue;
            }
            let more: Vec<_> = left_out.iter().copied().chain(start..start + width).collect();
            if begun.elapsed() >= shrinking {
                break;
            }
            if let Fared::Ill(_, why) = child(test, "", seed, 1, &list(&more)) {
                (left_out, described) = (more, why);
            }
        }
        width /= 4;
    }
    panic!(
        "the conversation of {SEED}={seed} fails: {why}\n\nwith fewer steps: {described}\n\nto see it again: {HERE}={} {SEED}={seed} {RUNS}=1 \
         cargo test -p farjump-conversations --test conversations {test} -- --nocapture",
        list(&left_out)
    );
}

fn list(steps: &[usize]) -> String {
    steps.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn a_target_survives_any_source_and_honest_links_lose_no_call() {
    let test = "a_target_survives_any_source_and_honest_links_lose_no_call";
    fuzz(test, "", to_target, 200, 5);
}

#[test]
fn every_wait_of_a_source_ends_whatever_its_target_does() {
    fuzz("every_wait_of_a_source_ends_whatever_its_target_does", "", to_source, 40, 0);
}

#[test]
fn deferred_calls_run_for_their_permitted_principal_and_reply_after_holds() {
    let test = "deferred_calls_run_for_their_permitted_principal_and_reply_after_holds";
    fuzz(test, "errands", of_errands, 20, 0);
}

#[test]
fn store_memory_is_freed_once_and_never_while_mapped() {
    let test = "store_memory_is_freed_once_and_never_while_mapped";
    fuzz(test, "stores", of_a_store, 20, 0);
}

#[test]
fn a_process_plays_the_role_that_it_was_started_for() {
    stores::play();
}
