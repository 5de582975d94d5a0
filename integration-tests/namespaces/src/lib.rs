//! Two network namespaces with a cable between them: two machines as far as sockets can tell, on one.
//!
//! Making them takes root and `ip` (package iproute2). They are gone when their value is, and also when the process that made
//! them is killed: a shell waits for its end.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the names of all of them begin with, before the number of the process that made them.
const PREFIX: &str = "farjump-";
/// The name of the cable's end in either.
pub const DEVICE: &str = "fj0";
/// How long the system may take to notice that a cable is plugged in.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(5);

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// 10.77.0.1.
    Left,
    /// 10.77.0.2.
    Right,
}

impl Side {
    /// The address of its end of the cable.
    pub const fn address(self) -> &'static str {
        match self {
            Side::Left => "10.77.0.1",
            Side::Right => "10.77.0.2",
        }
    }
}

/// The two, each with a loopback device and an end of the cable, all up.
#[derive(Debug)]
pub struct Namespaces {
    names: [String; 2],
    /// Removes both when its input ends.
    remover: Child,
}

impl Namespaces {
    /// Makes them.
    ///
    /// # Errors
    /// Why that cannot be done here, as a sentence. Nothing is left behind.
    pub fn new() -> Result<Namespaces, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep()?;
        let number = MADE.fetch_add(1, Relaxed);
        let names = ["left", "right"].map(|side| format!("{PREFIX}{}-{number}-{side}", id()));
        let remover = Command::new("sh")
            .args(["-c", "cat; ip netns del \"$0\"; ip netns del \"$1\""])
            .args(&names)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Or the key that interrupts the tests would end it first.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("no shell can be started: {error}"))?;
        let made = Namespaces { names, remover };
        let [left, right] = &made.names;
        ip(&["netns", "add", left])?;
        ip(&["netns", "add", right])?;
        ip(&["link", "add", DEVICE, "netns", left, "type", "veth", "peer", "name", DEVICE, "netns", right])?;
        for (name, side) in [(left, Side::Left), (right, Side::Right)] {
            ip(&["-n", name, "addr", "add", &format!("{}/24", side.address()), "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        made.await_carrier()?;
        Ok(made)
    }

    /// Waits until both ends are in use. The system tells of a cable that came up when it finds the time for it, and UCX takes
    /// no device before.
    fn await_carrier(&self) -> Result<(), String> {
        let begun = Instant::now();
        for name in &self.names {
            loop {
                let shown = ip(&["-n", name, "-o", "link", "show", DEVICE])?;
                if shown.contains(" state UP ") {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    return Err(format!("the cable does not come up: {}", shown.trim()));
                }
                sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Words that, before a program and its arguments, have it run in one of them, with the devices of that in `/sys`.
    pub fn launcher(&self, side: Side) -> Vec<String> {
        ["ip", "netns", "exec", self.name(side)].map(str::to_owned).into()
    }

    /// A command that runs `program` in one of them.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(side)]).arg(program);
        command
    }

    /// Pulls the cable out of one of them. Nothing comes through from here on, either way.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn pull(&self, side: Side) -> Result<(), String> {
        ip(&["-n", self.name(side), "link", "set", DEVICE, "down"]).map(drop)
    }

    /// Plugs it in again, and waits until both can use it.
    ///
    /// # Errors
    /// What `ip` said, or that it does not come up.
    pub fn plug(&self) -> Result<(), String> {
        for name in &self.names {
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        self.await_carrier()
    }

    /// Bytes that have come out of the cable on one side.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn received(&self, side: Side) -> Result<u64, String> {
        let counter = format!("/sys/class/net/{DEVICE}/statistics/rx_bytes");
        let output = self.command(side, "cat").arg(counter).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| format!("no number of bytes: {text:?}"))
    }

    fn name(&self, side: Side) -> &str {
        &self.names[side as usize]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Its end is what the remover waits for.
        drop(self.remover.stdin.take());
        // It fails where there was nothing to remove.
        let _ = self.remover.wait();
    }
}

/// Runs `ip`: what it prints.
fn ip(arguments: &[&str]) -> Result<String, String> {
    match Command::new("ip").args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(format!(
            "no network namespaces can be made here: ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("ip is not installed (package iproute2)".to_owned())
        }
        Err(error) => Err(format!("ip cannot be started: {error}")),
    }
}

/// Removes those whose process is no more, and whose remover was killed too.
fn sweep() -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(maker) = maker.and_then(|maker| maker.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{maker}")).exists()
            && let Err(why) = ip(&["netns", "del", &name])
            && Path::new("/run/netns").join(&*name).exists()
        {
            return Err(why);
        }
    }
    Ok(())
}
