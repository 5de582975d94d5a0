//! The compile process. It lives as long as an ifunc whose code it has compiled is registered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump_compiler::protocol::{Fault, Tier};
use farjump_compiler::{Compiler, Failed, Options};
use farjump_core::cpu::Cpu;
use farjump_loader::code_id;
use farjump_os::PerProcess;
use farjump_ucx_sys::UCS_ERR_UNSUPPORTED;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ucp_ifunc::Refused;

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
    pub(super) fn new() -> Used {
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

/// Locks the process for a registration, which may have it started ([`started`]).
pub(super) fn lock() -> MutexGuard<'static, Option<Compiler>> {
    SHARED.get().compiler.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the process, and starts it if it does not run.
///
/// # Errors
/// [`UCS_ERR_UNSUPPORTED`] if it cannot compile.
pub(super) fn started(compiler: &mut Option<Compiler>) -> Result<&mut Compiler, Refused> {
    let compiler = compiler.get_or_insert_with(|| Compiler::new(Options::default()));
    // `poll` notices a process that has ended meanwhile. It is then started anew.
    drop(compiler.poll());
    let unable =
        |why: String| Refused::new(UCS_ERR_UNSUPPORTED, format!("bitcode cannot be compiled here: {why}"));
    compiler.start(START).map_err(unable)?;
    Ok(compiler)
}

/// Makes the process compile bitcode for a CPU, and waits for it. Jobs run one after the other, because all together
/// may exceed the limits of the process.
pub(super) fn run(compiler: &mut Compiler, cpu: &Cpu, bitcode: &[u8]) -> Result<Vec<u8>, Failed> {
    let submitted = compiler.submit(Tier::Optimised, code_id(bitcode), cpu, bitcode);
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
