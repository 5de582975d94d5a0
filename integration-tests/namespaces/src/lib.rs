//! Two network namespaces with a cable between them: to sockets they are two machines.
//!
//! Making them requires root and `ip` (package iproute2). They are removed with their value, and also when the
//! process that made them is killed: a shell waits for its end.

mod relay;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use relay::Relay;

/// Prefix of the namespaces' names, before the number of the process that made them.
const PREFIX: &str = "farjump-";
/// The folder in which `ip` keeps the files of namespaces.
const NAMED: &str = "/run/netns";
/// The name of the cable's end in both.
pub const DEVICE: &str = "fj0";
/// Time that the system may take to notice a plugged cable.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of the checks.
const PAUSE: Duration = Duration::from_millis(5);

/// One of the two namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Namespace {
    /// 10.77.0.1.
    Left,
    /// 10.77.0.2.
    Right,
}

impl Namespace {
    /// The address of its end of the cable.
    pub const fn address(self) -> &'static str {
        match self {
            Namespace::Left => "10.77.0.1",
            Namespace::Right => "10.77.0.2",
        }
    }
}

/// The two namespaces, each with a loopback device and an end of the cable, all up.
#[derive(Debug)]
pub struct Namespaces {
    names: [String; 2],
    /// The process that removes both when its input ends.
    remover: Child,
    /// The relay between them, if there is no plain cable.
    relay: Option<Relay>,
}

impl Namespaces {
    /// Makes the namespaces.
    ///
    /// # Errors
    /// The reason why that is not possible here, as a sentence. Nothing is left behind.
    pub fn new() -> Result<Namespaces, String> {
        let made = Namespaces::unjoined()?;
        let [left, right] = &made.names;
        ip(&["link", "add", DEVICE, "netns", left, "type", "veth", "peer", "name", DEVICE, "netns", right])?;
        made.set_up()?;
        made.await_carrier()?;
        Ok(made)
    }

    /// Makes the namespaces with a cable that delays each packet by `delay`, in both directions. Threads of this
    /// process carry the packets. Such a cable cannot be pulled.
    ///
    /// # Errors
    /// Those of [`Namespaces::new`].
    pub fn delayed(delay: Duration) -> Result<Namespaces, String> {
        let mut made = Namespaces::unjoined()?;
        let [left, right] = [Namespace::Left, Namespace::Right].map(|side| made.file(side));
        made.relay = Some(Relay::start([&left, &right], DEVICE, delay)?);
        for name in &made.names {
            // A queue as long as a window: a plain cable blocks its sender instead.
            ip(&["-n", name, "link", "set", DEVICE, "txqueuelen", "10000"])?;
        }
        made.set_up()?;
        Ok(made)
    }

    /// Makes the namespaces without a connection.
    fn unjoined() -> Result<Namespaces, String> {
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
            // In a group of its own, so that the key that interrupts the tests does not end the remover first.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("no shell can be started: {error}"))?;
        let made = Namespaces { names, remover, relay: None };
        for name in &made.names {
            ip(&["netns", "add", name])?;
        }
        Ok(made)
    }

    /// Assigns the devices' addresses.
    fn set_up(&self) -> Result<(), String> {
        for (name, side) in self.names.iter().zip([Namespace::Left, Namespace::Right]) {
            ip(&["-n", name, "addr", "add", &format!("{}/24", side.address()), "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        Ok(())
    }

    /// Waits until both ends are in use. The system reports a new carrier with a delay, and UCX uses no device before
    /// that.
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

    /// The words that, before a program and its arguments, run it in one of the namespaces, with the namespace's
    /// devices in `/sys`.
    pub fn launcher(&self, side: Namespace) -> Vec<String> {
        ["ip", "netns", "exec", self.name(side)].map(str::to_owned).into()
    }

    /// A command that runs `program` in one of the namespaces.
    pub fn command(&self, side: Namespace, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(side)]).arg(program);
        command
    }

    /// Pulls the cable out of one of the namespaces. From then on nothing passes in either direction.
    ///
    /// # Errors
    /// The output of `ip`.
    pub fn pull(&self, side: Namespace) -> Result<(), String> {
        ip(&["-n", self.name(side), "link", "set", DEVICE, "down"]).map(drop)
    }

    /// Plugs the cable in again, and waits until both namespaces can use it.
    ///
    /// # Errors
    /// The output of `ip`, or a message that the cable does not come up.
    pub fn plug(&self) -> Result<(), String> {
        for name in &self.names {
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        self.await_carrier()?;
        // For packets that were sent meanwhile the system searches for the other end, for three seconds at a time. If
        // such a search ends just now without a result, a new connection finds no route.
        for name in &self.names {
            ip(&["-n", name, "neigh", "flush", "dev", DEVICE])?;
        }
        Ok(())
    }

    /// Bytes that have come out of the cable in one namespace.
    ///
    /// # Errors
    /// When the number cannot be read.
    pub fn received(&self, side: Namespace) -> Result<u64, String> {
        let counter = format!("/sys/class/net/{DEVICE}/statistics/rx_bytes");
        let output = self.command(side, "cat").arg(counter).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| format!("no number of bytes: {text:?}"))
    }

    /// The file of one of the namespaces, through which a process enters it (setns(2)).
    pub fn file(&self, side: Namespace) -> PathBuf {
        Path::new(NAMED).join(self.name(side))
    }

    fn name(&self, side: Namespace) -> &str {
        &self.names[side as usize]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The relay's devices are in the namespaces.
        drop(self.relay.take());
        // The remover waits for the end of its input.
        drop(self.remover.stdin.take());
        // This fails if there was nothing to remove.
        let _ = self.remover.wait();
    }
}

/// Runs `ip`, and returns its output.
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

/// Removes namespaces whose process and remover are both gone.
fn sweep() -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(NAMED) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(maker) = maker.and_then(|maker| maker.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{maker}")).exists()
            && let Err(why) = ip(&["netns", "del", &name])
            && Path::new(NAMED).join(&*name).exists()
        {
            return Err(why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time until a connection from the left namespace to the right one is refused.
    fn refused(namespaces: &Namespaces) -> Duration {
        let begun = Instant::now();
        // No process listens there: the refusal comes back over the same cable.
        let script = format!("exec 3<>/dev/tcp/{}/9", Namespace::Right.address());
        let tried =
            namespaces.command(Namespace::Left, "bash").args(["-c", &script]).stderr(Stdio::null()).status();
        assert!(!tried.expect("there is a shell").success());
        begun.elapsed()
    }

    #[test]
    fn packets_take_the_delay_in_each_direction() {
        let delay = Duration::from_millis(200);
        let namespaces = match Namespaces::delayed(delay) {
            Ok(namespaces) => namespaces,
            Err(why) => return println!("skipped: {why}"),
        };
        assert!(refused(&namespaces) >= 2 * delay);
        let received = namespaces.received(Namespace::Left).unwrap();
        assert_ne!(received, 0, "the refusal came by another way");
        let [left, right] = [Namespace::Left, Namespace::Right].map(|side| namespaces.file(side));
        drop(namespaces);
        assert!(!left.exists() && !right.exists());
    }
}
