//! The compile process, which makes images of bitcode. It lives as long as an ifunc that it has made is registered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farjump_compiler::client::MAX_BYTES;
use farjump_compiler::protocol::{Fault, Tier};
use farjump_compiler::{Compiler, Failed, Options};
use farjump_core::bitcode::BitcodeParts;
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};
use farjump_loader::code_id;
use farjump_os::PerProcess;
use farjump_os::cpu::detected;
use farjump_ucx_sys::{
    UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_NO_ELEM, UCS_ERR_NO_RESOURCE, UCS_ERR_REJECTED, UCS_ERR_UNSUPPORTED,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{ForMachine, routines};
use crate::ucp_ifunc::Refused;

const _: () = assert!(super::directory::MOST == MAX_BYTES as u64);

/// Time for the process to open LLVM.
const START: Duration = Duration::from_secs(30);
/// Time between looks at a silent process.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The process, and the number of ifuncs and registrations that use it.
#[derive(Debug, Default)]
struct Shared {
    /// A registration locks it while it compiles.
    compiler: Mutex<Option<Compiler>>,
    users: AtomicUsize,
}

static SHARED: PerProcess<Shared> = PerProcess::new();

/// A use of the process, which ends with the last one.
#[derive(Debug)]
pub(super) struct Used(());

impl Used {
    fn new() -> Used {
        SHARED.get().users.fetch_add(1, Ordering::AcqRel);
        Used(())
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let Shared { compiler, users } = SHARED.get();
        // A forked child that drops its parent's registrations has no uses of its own to count down.
        let before = users.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| users.checked_sub(1));
        if before != Ok(1) {
            return;
        }
        // A registration that has the lock uses the process, and ends it. One that has begun meanwhile keeps it.
        let ended = match compiler.try_lock() {
            Ok(mut compiler) if users.load(Ordering::Acquire) == 0 => compiler.take(),
            _ => None,
        };
        // Waits until the process ends, without the lock.
        drop(ended);
    }
}

/// The images of an ifunc.
#[derive(Debug)]
pub(super) struct Images {
    /// One image for each machine that LLVM knows.
    pub(super) images: Vec<Vec<u8>>,
    /// The image of the payload routines, for this CPU.
    pub(super) routines: Option<Vec<u8>>,
    /// Keeps the process for later ifuncs.
    pub(super) used: Used,
}

/// A job: bitcode, and the CPU to compile it for.
struct Job<'a> {
    triple: &'a str,
    cpu: Cpu,
    bitcode: Vec<u8>,
    /// True if the machine is this one. LLVM must then know it.
    is_own: bool,
    makes_routines: bool,
}

/// Compiles the bitcode of the ifunc `name`: an image for any CPU of each machine, and one of this machine's payload
/// routines.
///
/// # Errors
/// As [`super::libraries`]; [`UCS_ERR_NO_RESOURCE`] if time did not suffice, or the process ended; [`UCS_ERR_EXCEEDS_LIMIT`] for
/// longer bitcode than the process takes.
pub(super) fn images(name: &str, bitcode: &[&ForMachine<'_>], wanted: &[&str]) -> Result<Images, Refused> {
    let mut jobs = Vec::new();
    for one in bitcode {
        let (machine, triple, module) = (one.machine, one.given.triple, one.given.bytes);
        let is_own = Some(machine) == Machine::native();
        let container = |name: &str, modules| {
            let parts = BitcodeParts {
                machine,
                payload_align_log2: 0,
                llvm: 0,
                name,
                wanted: wanted.to_vec(),
                modules,
            };
            let too_long = |text| {
                Refused::new(UCS_ERR_EXCEEDS_LIMIT, format!("the bitcode of `{name}` for {triple}: {text}"))
            };
            let encoded = parts.encode().map_err(|error| too_long(error.to_string()))?;
            match encoded.len() {
                len if len > MAX_BYTES => Err(too_long(format!("{len} bytes are more than {MAX_BYTES}"))),
                _ => Ok(encoded),
            }
        };
        // A CPU without features stands for any CPU of its level.
        let cpu = Cpu::new(machine, Level::BASELINE, "", [""; 0])
            .map_err(|error| Refused::new(UCS_ERR_UNSUPPORTED, error.to_string()))?;
        jobs.push(Job {
            triple,
            cpu,
            bitcode: container(name, vec![module])?,
            is_own,
            makes_routines: false,
        });
        if is_own {
            let table = routines::table(name);
            let bitcode = container(routines::NAME, vec![module, table.as_bytes()])?;
            jobs.push(Job { triple, cpu: (*detected()).clone(), bitcode, is_own, makes_routines: true });
        }
    }
    let used = Used::new();
    let mut compiler = SHARED.get().compiler.lock().unwrap_or_else(PoisonError::into_inner);
    let compiler = started(&mut compiler)?;
    let (mut images, mut made) = (Vec::new(), None);
    for job in &jobs {
        match run(compiler, job) {
            Ok(image) if job.makes_routines => made = Some(image),
            Ok(image) => images.push(image),
            Err(Failed { fault: Fault::Machine, .. }) if !job.is_own => {}
            Err(failed) => return Err(refused(name, job.triple, &failed)),
        }
    }
    Ok(Images { images, routines: made, used })
}

#[cold]
fn refused(name: &str, triple: &str, failed: &Failed) -> Refused {
    let status = match failed.fault {
        Fault::Means => UCS_ERR_NO_RESOURCE,
        Fault::Code => UCS_ERR_REJECTED,
        Fault::Main => UCS_ERR_NO_ELEM,
        Fault::Machine => UCS_ERR_UNSUPPORTED,
    };
    Refused::new(status, format!("the bitcode of `{name}` for {triple} was not compiled: {}", failed.text))
}

/// Returns the process, and starts it if it does not run.
///
/// # Errors
/// [`UCS_ERR_UNSUPPORTED`] if it cannot compile.
fn started(compiler: &mut Option<Compiler>) -> Result<&mut Compiler, Refused> {
    let compiler = compiler.get_or_insert_with(|| Compiler::new(Options::default()));
    // `poll` notices a process that has ended meanwhile. It is then started anew.
    drop(compiler.poll());
    let unable =
        |why: String| Refused::new(UCS_ERR_UNSUPPORTED, format!("bitcode cannot be compiled here: {why}"));
    compiler.start(START).map_err(unable)?;
    Ok(compiler)
}

/// Makes the process do a job, and waits for it. Jobs run one after the other, because all together may exceed the
/// limits of the process.
fn run(compiler: &mut Compiler, job: &Job<'_>) -> Result<Vec<u8>, Failed> {
    let submitted = compiler.submit(Tier::Optimised, code_id(&job.bitcode), &job.cpu, &job.bitcode);
    let number = submitted.map_err(|text| Failed { fault: Fault::Means, text })?;
    // The loop ends: `poll` stops a process that stays silent, and fails its jobs.
    loop {
        if let Some(done) = compiler.poll().into_iter().find(|done| done.number == number) {
            return done.result.map(|compiled| compiled.image);
        }
        if let Some((fd, _)) = compiler.descriptor() {
            // An interrupted wait is a look at the process.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&LOOK));
        }
    }
}
