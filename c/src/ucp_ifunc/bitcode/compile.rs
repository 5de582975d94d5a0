//! Images of bitcode, made by the compile process.

use farjump_compiler::Failed;
use farjump_compiler::client::MAX_BYTES;
use farjump_compiler::protocol::Fault;
use farjump_core::bitcode::BitcodeParts;
use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};
use farjump_os::cpu::detected;
use farjump_ucx_sys::{
    UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_NO_ELEM, UCS_ERR_NO_RESOURCE, UCS_ERR_REJECTED, UCS_ERR_UNSUPPORTED,
};

use super::process::{self, Used};
use super::{ForMachine, routines};
use crate::ucp_ifunc::Refused;

const _: () = assert!(super::directory::MOST == MAX_BYTES as u64);

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
    let mut compiler = process::lock();
    let compiler = process::started(&mut compiler)?;
    let (mut images, mut made) = (Vec::new(), None);
    for job in &jobs {
        match process::run(compiler, &job.cpu, &job.bitcode) {
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
