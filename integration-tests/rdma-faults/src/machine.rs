//! Operations of cases on the machine: interfaces and devices that are removed and come back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farjump_transports::verbs::Options;

use crate::Skip;

/// The device used by the cases.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Its name: `rxe0`.
    pub(crate) device: String,
    /// Its network interface.
    pub(crate) interface: String,
    /// All GIDs of its port before the case.
    gids: Vec<String>,
}

/// An interface that is down; up again when dropped.
pub(crate) struct Down<'m>(&'m Machine);

/// A removed device or interface; restored when dropped.
pub(crate) struct Removed<'m> {
    machine: &'m Machine,
    interface_too: bool,
}

impl Machine {
    /// This machine, if its device is a Soft-RoCE and this process is root, which may remove it.
    pub(crate) fn breakable() -> Result<Machine, Skip> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip("only root takes interfaces down".to_owned()));
        }
        let Some(device) = device() else { return Err(Skip("there is no device".to_owned())) };
        // Only Soft-RoCE names its interface in this way.
        let Ok(interface) = fs::read_to_string(format!("/sys/class/infiniband/{device}/parent")) else {
            return Err(Skip(format!("{device} is no Soft-RoCE, whose interface could be taken down")));
        };
        let mut machine = Machine { device, interface: interface.trim().to_owned(), gids: Vec::new() };
        machine.gids = machine.gids_now();
        Ok(machine)
    }

    /// Takes the interface down.
    pub(crate) fn down(&self) -> Down<'_> {
        run("ip", &["link", "set", &self.interface, "down"]);
        Down(self)
    }

    /// Removes the device from the interface. Returns the command, which may wait until nothing uses the
    /// device.
    pub(crate) fn remove_device(&self) -> (Removed<'_>, Child) {
        let child = Command::new("rdma").args(["link", "delete", &self.device]).spawn().unwrap();
        (Removed { machine: self, interface_too: false }, child)
    }

    /// Removes the interface itself, which must have been made for tests only; the device goes with it.
    pub(crate) fn remove_interface(&self) -> Result<(Removed<'_>, Child), Skip> {
        if !self.interface.starts_with("dummy") {
            return Err(Skip(format!("{} cannot be made again", self.interface)));
        }
        let child = Command::new("ip").args(["link", "delete", &self.interface]).spawn().unwrap();
        Ok((Removed { machine: self, interface_too: true }, child))
    }

    /// Number of the device's objects of a kind (`qp`, `mr`), over all programs.
    pub(crate) fn objects(&self, kind: &str) -> u64 {
        let said = run("rdma", &["resource", "show", &self.device]);
        let mut words = said.split_whitespace().skip_while(|word| *word != kind);
        let count = words.nth(1).and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("rdma lists no {kind}: {said}"))
    }

    /// Waits until there are `count` of them again.
    pub(crate) fn await_objects(&self, kind: &str, count: u64) {
        awaits(&format!("{count} objects {kind}"), || self.objects(kind) == count);
    }

    fn has_device(&self) -> bool {
        PathBuf::from(format!("/sys/class/infiniband/{}", self.device)).exists()
    }

    /// Waits until the device is gone, at most `limit`. Returns whether it is gone.
    pub(crate) fn is_without_device(&self, limit: Duration) -> bool {
        comes_true(limit, || !self.has_device())
    }

    fn port(&self, file: &str) -> String {
        let path = format!("/sys/class/infiniband/{}/ports/1/{file}", self.device);
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Number of repeated requests that came to the port.
    pub(crate) fn repeated(&self) -> u64 {
        self.port("hw_counters/duplicate_request").trim().parse().unwrap_or(0)
    }

    fn is_active(&self) -> bool {
        self.port("state").contains("ACTIVE")
    }

    fn gids_now(&self) -> Vec<String> {
        (0..8).map(|index| self.port(&format!("gids/{index}"))).collect()
    }

    /// Waits until the port is as before.
    fn await_up(&self) {
        awaits("the port's state and addresses of before", || {
            self.is_active() && self.gids_now() == self.gids
        });
    }
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        run("ip", &["link", "set", &self.0.interface, "up"]);
        self.0.await_up();
    }
}

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let Machine { device, interface, .. } = self.machine;
        awaits("the end of the device", || !self.machine.has_device());
        if self.interface_too {
            run("ip", &["link", "add", interface, "type", "dummy"]);
            let here = std::env::var("HERE").unwrap_or_else(|_| "10.9.0.1".to_owned());
            run("ip", &["addr", "add", &format!("{here}/24"), "dev", interface]);
            run("ip", &["link", "set", interface, "up"]);
        }
        run("rdma", &["link", "add", device, "type", "rxe", "netdev", interface]);
        // A new interface has another address, and so other GIDs.
        let of_ip = || self.machine.gids.iter().filter(|gid| gid.contains(":ffff:"));
        awaits("the new port's state and addresses", || {
            let now = self.machine.gids_now();
            self.machine.is_active() && of_ip().all(|gid| now.contains(gid))
        });
        set_nodes(EVERYBODY).unwrap();
    }
}

/// Waits until `holds` returns true, at most `limit`. Returns whether it did.
pub(crate) fn comes_true(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Waits until `holds` returns true. After a minute it reports `what`.
///
/// # Panics
/// After that, unless this thread panics already.
fn awaits(what: &str, holds: impl FnMut() -> bool) {
    if !comes_true(Duration::from_secs(60), holds) {
        let said = format!("waited a minute for {what}");
        assert!(thread::panicking(), "{said}");
        eprintln!("{said}");
    }
}

/// The device that backends use: the named one, or the first.
fn device() -> Option<String> {
    let named = Options::of_process().ok().and_then(|options| options.device);
    let first = || {
        let devices = fs::read_dir("/sys/class/infiniband").ok()?;
        devices.filter_map(|device| device.ok()?.file_name().into_string().ok()).min()
    };
    named.or_else(first)
}

/// Runs a system command, and returns its output.
///
/// # Panics
/// If it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let ended = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ended = ended.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{program} {}: {said}", arguments.join(" "));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Access modes of the devices' nodes: for all users, as before a case, or for root only.
pub(crate) const EVERYBODY: u32 = 0o666;
pub(crate) const ROOT: u32 = 0o600;

/// Sets the access mode of the devices' nodes.
pub(crate) fn set_nodes(mode: u32) -> std::io::Result<()> {
    for entry in fs::read_dir("/dev/infiniband")? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Repairs, as far as possible, the remains of a killed case: an interface that is down, closed nodes.
pub(crate) fn mend() {
    if let Ok(machine) = Machine::breakable() {
        // If either fails, the next case reports it.
        let _ = Command::new("ip").args(["link", "set", &machine.interface, "up"]).status();
        let _ = set_nodes(EVERYBODY);
    }
}
