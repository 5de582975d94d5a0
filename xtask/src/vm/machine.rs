//! One virtual machine: QEMU without KVM, because a machine that is itself virtual may have no KVM that works.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::log::{self, Log, Verdict};
use crate::process::{Failed, Interrupt, Run};

/// QEMU.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// The hardware of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hardware<'a> {
    /// A PC with an RDMA device.
    Pc,
    /// A machine of aarch64 without devices, and QEMU's program for it.
    Arm(&'a Path),
}

/// Parts of a machine.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) hardware: Hardware<'a>,
    /// The kernel: of a PC, an ELF file.
    pub(super) kernel: &'a Path,
    /// Its file system.
    pub(super) initramfs: &'a Path,
    /// File for its console.
    pub(super) log: &'a Path,
    /// Prefix of each shown line of the console.
    pub(super) mark: &'a str,
    /// The part of the output that is shown.
    pub(super) shown: Shown,
    /// The cable to another machine, this machine's part, and whether either has ended before all was done.
    pub(super) pair: Option<(OwnedFd, Role, &'a AtomicBool)>,
    /// Time limit once it is up.
    pub(super) limit: Duration,
}

/// Time limit until the machine is up. It takes three seconds, ten under load. Within this time it also waits for its
/// cable and for the other machine.
const BOOT: Duration = Duration::from_secs(180);

/// The part of a machine's output that is shown while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// The console, from the machine's first own line on.
    Console,
    /// The commands as they end, with these names by their numbers.
    Commands(Vec<String>),
    /// Nothing.
    Nothing,
}

/// One of two machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The machine that makes requests.
    Requests,
    /// The machine that serves.
    Serves,
}

impl Role {
    /// The machine's name in output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Role::Requests => "asks",
            Role::Serves => "serves",
        }
    }

    fn address(self) -> &'static str {
        match self {
            Role::Requests => "10.9.0.1",
            Role::Serves => "10.9.0.2",
        }
    }

    fn number(self) -> u8 {
        match self {
            Role::Requests => 1,
            Role::Serves => 2,
        }
    }
}

/// The processor. Without SMAP: with it QEMU before 9.1 rejects the `iretq` by which farjump serialises. With four
/// levels of page tables, which take less walking. Without fast string instructions: QEMU executes `rep movsb` byte
/// by byte. If the processor does not announce it, the kernel, and with it the device, copies eight bytes at a time.
const PROCESSOR: &str = "max,la57=off,smap=off,erms=off,fsrm=off";

impl Machine<'_> {
    /// Boots the machine, and waits until it is off.
    ///
    /// # Errors
    /// When interrupted, or there is no QEMU. If the machine does not finish, the log shows it.
    pub(super) fn run(self, interrupt: &Interrupt) -> Result<Log, Failed> {
        let log = self.log.display();
        let mut options =
            "-accel tcg,thread=multi -smp 2 -nodefaults -no-user-config -display none -no-reboot \
                           -serial chardev:console"
                .to_owned();
        // The status with which QEMU ends if all is done: a PC writes the value 0 to a port, which QEMU shifts, and adds 1.
        let (program, done) = match self.hardware {
            Hardware::Pc => {
                options += &format!(
                    " -machine q35 -cpu {PROCESSOR} -m 1536 -device isa-debug-exit,iobase=0xf4,iosize=0x04"
                );
                (Path::new(QEMU), 1)
            }
            Hardware::Arm(program) => {
                options += " -machine virt -cpu max -m 3072";
                (program, 0)
            }
        };
        let own = match (&self.pair, self.hardware) {
            (None, Hardware::Arm(_)) => "console=ttyAMA0".to_owned(),
            (None, Hardware::Pc) => "console=ttyS0 vm.here=10.9.0.1 vm.device=dummy0".to_owned(),
            (Some((_, role, _)), _) => {
                let there = if *role == Role::Requests { Role::Serves } else { Role::Requests };
                let serves = if *role == Role::Serves { "yes" } else { "no" };
                // The cable is standard input: the only descriptor that a child inherits without unsafe code.
                options += &format!(
                    " -netdev socket,id=cable,fd=0 -device virtio-net-pci,netdev=cable,mac=52:54:00:09:00:{:02x}",
                    role.number()
                );
                let (here, there) = (role.address(), there.address());
                format!("console=ttyS0 vm.here={here} vm.there={there} vm.serves={serves} vm.device=eth0")
            }
        };
        // The frequency: an emulated machine measures a wrong one when this one is busy, and its clock then runs
        // fast. One processor: a kernel patches its own code while it boots and makes devices. If another processor
        // runs meanwhile, QEMU before 8.1 may keep a translation of the breakpoint in between. The kernel then panics
        // ("Oops: int3") or stands still (ClangBuiltLinux/boot-utils#111). init.sh starts the second processor. Not
        // `quiet`: the messages show where a kernel stands still.
        let append = format!(
            "maxcpus=1 panic=-1 reboot=t mitigations=off nokaslr tsc=reliable tsc_early_khz={} no_timer_check \
             random.trust_cpu=on {own}",
            kilohertz()
        );
        let run = Run::new(program, interrupt)
            .args(options.split_whitespace())
            .args(["-chardev", &format!("file,id=console,path=/dev/stdout,logfile={log}")])
            .args([
                "-kernel".as_ref(),
                self.kernel.as_os_str(),
                "-initrd".as_ref(),
                self.initramfs.as_os_str(),
            ])
            .args(["-append", &append])
            .mark(self.mark)
            .limit(self.limit)
            .limit_before(BOOT, log::is_up);
        let run = match self.shown {
            Shown::Console => run.showing(from_own_lines()),
            Shown::Commands(names) => run.showing(naming(self.mark.to_owned(), names)),
            Shown::Nothing => run.quiet(),
        };
        // If QEMU fails early, an earlier machine's console would be read as this one's.
        if let Err(error) = std::fs::remove_file(self.log)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(Failed::Because(format!("{log}: {error}")));
        }
        let (run, other) = match self.pair {
            Some((cable, _, broke)) => (run.input(cable).unless(broke), Some(broke)),
            None => (run, None),
        };
        let read = match run.run() {
            Ok(ended) => {
                let why =
                    (ended.status.code() != Some(done)).then(|| format!("QEMU ended with {}", ended.status));
                Log::read(&ended.output, why)
            }
            Err(Failed::Because(why)) => {
                let text = std::fs::read(self.log).unwrap_or_default();
                // Without QEMU's arguments, which are shown above.
                let why = why.rsplit_once("` ").map_or(why.clone(), |(_, how)| format!("QEMU {how}"));
                Log::read(&String::from_utf8_lossy(&text), Some(why))
            }
            Err(error) => return Err(error),
        };
        if let Some(why) = &read.broke {
            let mark = self.mark;
            say!("{mark}{why}; the end of its console:\n{}", read.last_lines(mark));
            // Otherwise the other machine would wait for this one.
            other.iter().for_each(|other| other.store(true, Ordering::Relaxed));
        }
        Ok(read)
    }
}

/// Shows all lines except the kernel's before the machine's own first line.
fn from_own_lines() -> impl FnMut(&str) -> bool + 'static {
    let mut has_begun = false;
    move |line| {
        has_begun |= line.starts_with("@@ ");
        has_begun
    }
}

/// Reports each command when it has ended, and its skipped tests.
fn naming(mark: String, names: Vec<String>) -> impl FnMut(&str) -> bool + 'static {
    let mut since = 0;
    move |line| {
        match *line.trim_end().split(' ').collect::<Vec<_>>() {
            ["@@", "up", at, _] => since = at.parse().unwrap_or(since),
            ["@@", "end", number, status, at] => {
                let name = number.parse().ok().and_then(|number: usize| names.get(number));
                let until: u32 = at.parse().unwrap_or(since);
                let word = Verdict::word(status.parse().ok());
                let name = name.map_or("?", String::as_str);
                say!("{mark}{word:7} {name} ({} s)", until.saturating_sub(since));
                since = until;
            }
            _ => {}
        }
        line.starts_with("skipped")
    }
}

/// The frequency of this machine's time stamp counter in kHz. An emulated machine has this counter, too.
#[cfg(target_arch = "x86_64")]
fn kilohertz() -> u128 {
    let now = || {
        // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        (ticks, Instant::now())
    };
    let (from, begun) = now();
    std::thread::sleep(Duration::from_millis(200));
    let (to, ended) = now();
    u128::from(to.wrapping_sub(from)) * 1_000_000 / (ended - begun).as_nanos().max(1)
}

/// Other machines have no such counter, and are not emulated.
#[cfg(not(target_arch = "x86_64"))]
fn kilohertz() -> u128 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_shown_from_the_machines_own_first_line_on() {
        let mut shows = from_own_lines();
        let lines = ["[    1.0] Linux", "@@ up 7 x", "[   7.1] rdma_rxe: loaded", "hello"];
        assert_eq!(lines.map(&mut shows), [false, true, true, true]);
    }
}
