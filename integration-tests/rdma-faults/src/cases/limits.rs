//! Scarce resources: device objects, lockable memory, privileges. The machine or its administrator limits them.

use farjump_fixtures::helper_process::HelperProcess;
use std::fs;
use std::path::PathBuf;

use crate::endpoints::says;
use crate::helper::{As, library, start_as};
use crate::machine::{EVERYBODY, Machine, ROOT, run, set_nodes};
use crate::source::{FOREVER, LENGTHS, check_replies, link};
use crate::target::Played;
use crate::{Done, Skip};

/// A process without privileges.
const UNPRIVILEGED: As = As { nobody: true, locks: None, group: None };
/// Too little for any mailbox, in bytes.
const LITTLE: u64 = 64 << 10;

/// A control group that limits the RDMA objects of its processes. Soft-RoCE has a million queue pairs, which no test
/// reaches; with a limit the system refuses the same calls. Removed when dropped.
struct Group {
    mount: tempfile::TempDir,
    device: String,
}

impl Group {
    fn new(device: &str) -> Result<Group, Skip> {
        let mount = tempfile::tempdir().unwrap();
        let at = mount.path().display().to_string();
        run("mount", &["-t", "cgroup2", "none", &at]);
        let group = Group { mount, device: device.to_owned() };
        let all = group.mount.path();
        fs::create_dir(group.path()).unwrap();
        if fs::write(all.join("cgroup.subtree_control"), "+rdma").is_err() || group.limit("max").is_err() {
            return Err(Skip("the kernel has no control groups for RDMA".to_owned()));
        }
        Ok(group)
    }

    fn path(&self) -> PathBuf {
        self.mount.path().join("verbs-faults")
    }

    /// Sets the number of objects that its processes may have.
    fn limit(&self, objects: &str) -> std::io::Result<()> {
        fs::write(
            self.path().join("rdma.max"),
            format!("{} hca_handle=max hca_object={objects}", self.device),
        )
    }

    /// The number of objects that they have.
    fn objects(&self) -> u64 {
        let said = fs::read_to_string(self.path().join("rdma.current")).unwrap();
        let count = said.split_whitespace().find_map(|word| word.strip_prefix("hca_object=")?.parse().ok());
        count.unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes are gone by now; a failure leaves an empty group behind. The limit is lifted first: Linux
        // 6.12 keeps a device count for a group that has a limit, beyond the group's end, and breaks when the device
        // is removed.
        let _ = self.limit("max");
        let _ = fs::remove_dir(self.path());
        let _ = std::process::Command::new("umount").arg(self.mount.path()).status();
    }
}

pub(crate) fn objects(backend: &str) -> Done {
    let machine = Machine::breakable()?;
    let group = Group::new(&machine.device)?;
    let counter = library("counter");
    let who = As { group: Some(group.path()), ..As::default() };
    let mut target = Played::start_as(&who, backend).unwrap();
    let links: Vec<_> = (0..3).map(|_| link(backend, &target.address).connect().unwrap()).collect();
    links.iter().for_each(|link| check_replies(link, &counter, 4));
    // The group allows no further object, then one, then two, until a link has all that it needs. Until then the
    // error names the missing object, and nothing else is left behind.
    let enough = group.objects();
    let before = machine.objects("qp");
    for more in 0.. {
        group.limit(&(enough + more).to_string()).unwrap();
        // A link may connect, and lack an object for its first frame of some length.
        let made = link(backend, &target.address).connect().and_then(|link| {
            LENGTHS.iter().try_for_each(|len| link.inject(&counter, &vec![1; *len])?.wait(FOREVER).map(drop))
        });
        match made {
            Ok(()) => {
                assert!(more > 2, "{more} objects are enough for a link");
                break;
            }
            Err(error) => says(&error, &[&machine.device, "has no further ", "rdma.max"]),
        }
        machine.await_objects("qp", before);
        links.iter().for_each(|link| check_replies(link, &counter, 1));
    }
    // There is capacity again when another link ends.
    machine.await_objects("qp", before);
    group.limit(&group.objects().to_string()).unwrap();
    assert!(link(backend, &target.address).connect().is_err());
    let mut links = links.into_iter();
    drop(links.next());
    while target.count().1 != 2 {}
    check_replies(&link(backend, &target.address).connect().unwrap(), &counter, 4);
    links.for_each(|link| check_replies(&link, &counter, 1));
    Ok(())
}

pub(crate) fn memory(backend: &str) -> Done {
    privileged()?;
    let poor = As { locks: Some(LITTLE), ..UNPRIVILEGED };
    let words = ["was not given", "bytes of memory", "may lock 65536 bytes (RLIMIT_MEMLOCK)", "ulimit -l "];
    // The source's own error, for its user.
    let target = Played::start_as(&UNPRIVILEGED, backend).unwrap();
    let source = start_as(&poor, &["source", backend, &target.address]);
    says(&source.hear_after("refused"), &words);
    // Another source has enough.
    replied(&mut start_as(&UNPRIVILEGED, &["source", backend, &target.address]));
    // The target's error reaches the source. The target may even fail to start, and then reports the error itself.
    match Played::start_as(&poor, backend) {
        Err(why) => says(&why, &words),
        Ok(target) => {
            let source = start_as(&UNPRIVILEGED, &["source", backend, &target.address]);
            says(&source.hear_after("refused"), &words);
        }
    }
    Ok(())
}

pub(crate) fn user(backend: &str) -> Done {
    privileged()?;
    let target = Played::start_as(&UNPRIVILEGED, backend).unwrap();
    let mut source = start_as(&UNPRIVILEGED, &["source", backend, &target.address]);
    replied(&mut source);
    Ok(())
}

pub(crate) fn node(backend: &str) -> Done {
    /// Restores all users' access to the nodes.
    struct Open;
    impl Drop for Open {
        fn drop(&mut self) {
            set_nodes(EVERYBODY).unwrap();
        }
    }
    Machine::breakable()?;
    let target = Played::start_as(&UNPRIVILEGED, backend).unwrap();
    let open = Open;
    set_nodes(ROOT).unwrap();
    let source = start_as(&UNPRIVILEGED, &["source", backend, &target.address]);
    says(&source.hear_after("refused"), &["cannot be opened", "/dev/infiniband/uverbs", "ermission"]);
    drop(open);
    replied(&mut start_as(&UNPRIVILEGED, &["source", backend, &target.address]));
    Ok(())
}

/// Makes a source in a process of its own call its target.
fn replied(source: &mut HelperProcess) {
    source.hear_after("connected");
    for _ in 0..3 {
        source.order("call");
        source.hear_after("answered");
    }
}

/// Checks that this process can become an unprivileged user, and allow that user to lock memory.
fn privileged() -> Result<(), Skip> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skip("only root starts programs as somebody else".to_owned()));
    }
    let all = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, all)
        .map_err(|errno| Skip(format!("the limit of locked memory cannot be raised: {errno}")))
}
