//! The CPU of this process, for its peers.

use std::sync::{Arc, OnceLock};

use farjump_core::cpu::Cpu;
use farjump_core::image::{Level, Machine};

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(any(target_arch = "riscv64", test))]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
mod x86_64_names;

/// The findings of one machine's detection.
struct Found {
    /// As in [`Cpu::name`]; empty if unknown.
    name: &'static str,
    /// As in [`Cpu::features`], in any order.
    features: Vec<&'static str>,
}

/// Returns the CPU that this process runs on. Each process detects it once, because this costs some
/// instructions that trap in a virtual machine. If processors of a machine differ, the features are those of
/// all, and the name is that of the processor that ran the detection.
pub fn detected() -> Arc<Cpu> {
    static DETECTED: OnceLock<Arc<Cpu>> = OnceLock::new();
    DETECTED.get_or_init(|| Arc::new(detect())).clone()
}

fn detect() -> Cpu {
    let Some(machine) = Machine::native() else { return Cpu::default() };
    let Found { name, features } = look();
    let level = Cpu::level_with(machine, |feature| features.contains(&feature));
    Cpu::new(machine, level, name, features).unwrap_or_else(|error| {
        // The tables hold nothing that `Cpu::new` refuses: a test makes a CPU of all their entries.
        log::warn!("this CPU is told as one of the baseline: {error}");
        Cpu::of_level(machine, Level::BASELINE)
    })
}

#[cfg(target_arch = "x86_64")]
use x86_64::look;

#[cfg(target_arch = "aarch64")]
use aarch64::look;

#[cfg(target_arch = "riscv64")]
use riscv64::look;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
fn look() -> Found {
    Found { name: "", features: Vec::new() }
}

#[cfg(test)]
mod tests;
