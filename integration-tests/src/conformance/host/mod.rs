//! Hosts of targets: a thread of this process, a process of its own, or another machine. To checks they are alike.

mod child;
mod control;
mod remote;
mod socket;
mod target;

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use farjump::{CodeId, Library, Link, LinkBuilder, Mode};
use farjump_core::transport::Transport;
use tempfile::TempDir;

use super::failure::{Failure, ensure};
use super::libraries::{Libraries, libraries};
use super::outcome::Level;
use super::subject::{Keep, Subject};

use child::Child;
pub(super) use child::{is_child, is_child_for, play};
pub(crate) use control::Counts;
use control::{Command, Commands};
pub use remote::{serve_targets, serve_threads};
use socket::Stream;
use target::serve;
pub(super) use target::{Args, MAILBOX, MAX_PAYLOAD};

/// Upper bound of the bytes of a frame beside its payload, with the code of any of the suite's functions.
pub(super) const AROUND: usize = 8 << 10;
/// Longer than any honest operation takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The fixture of a check: a subject, and the host of its targets.
pub(super) struct Fixture {
    subject: Subject,
    level: Level,
    folder: TempDir,
    keeps: RefCell<Vec<Keep>>,
    max_frame: usize,
    pub(super) libraries: &'static Libraries,
}

impl Fixture {
    pub(super) fn new(subject: &Subject, level: Level) -> Result<Fixture, Failure> {
        let (folder, libraries) = (tempfile::tempdir()?, libraries()?);
        if level.mode() == Some(Mode::Local) {
            target::give(folder.path(), &libraries.files)?;
        }
        let (subject, max_frame) = (subject.clone(), subject.max_frame()?);
        Ok(Fixture { subject, level, folder, keeps: RefCell::default(), max_frame, libraries })
    }

    /// The mode in which code travels.
    pub(super) fn mode(&self) -> Mode {
        self.level.mode().unwrap_or_default()
    }

    /// Longest frame of the subject's path in bytes.
    pub(super) fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// `len`, or the longest payload that fits a frame of the path beside code, if that is less.
    pub(super) fn fitting(&self, len: usize) -> usize {
        len.min(self.max_frame - AROUND)
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Number of frames for a check: `share` thousandths of the volume, at least `least`. The whole share is sent in
    /// mode cached, between processes if the subject can run so. A tenth tests the other modes as well: its frames
    /// fill the mailbox many times, and the number of frames changes nothing else.
    pub(super) fn frames(&self, share: u64, least: u64) -> u64 {
        let within_one = matches!(self.level, Level::Threads(_));
        let whole = self.mode() == Mode::Cached && !(within_one && self.subject.is_between_processes());
        let frames = self.subject.frames(share, least);
        if whole { frames } else { (frames / 10).max(least) }
    }

    /// Starts a target that listens.
    pub(super) fn host(&self, args: Args) -> Result<Host<'_>, Failure> {
        let mut host = Host { fixture: self, args, running: None };
        host.start(0)?;
        Ok(host)
    }

    /// Fails if a pair noticed a violation by core. Call this after links and targets have ended.
    pub(super) fn end(self) -> Result<(), Failure> {
        let wrong: Vec<_> = self.keeps.borrow().iter().flat_map(Keep::verdict).collect();
        ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
        Ok(())
    }

    fn source(&self) -> Box<dyn Transport> {
        let pair = self.subject.make();
        self.keeps.borrow_mut().push(pair.keep);
        pair.source
    }

    fn target(&self) -> Box<dyn Transport> {
        let pair = self.subject.make();
        self.keeps.borrow_mut().push(pair.keep);
        pair.target
    }
}

/// The address of the subject's target on this machine: in its folder, or at a TCP port, 0 for any.
fn address_of(subject: &Subject, folder: &Path, port: u16) -> String {
    match subject.is_over_tcp() {
        true => format!("tcp:127.0.0.1:{port}"),
        false => format!("unix:{}", folder.join("target.sock").display()),
    }
}

/// The TCP port of a target's address; 0 without one.
fn port_of(address: &str) -> Result<u16, Failure> {
    if !address.starts_with("tcp:") {
        return Ok(0);
    }
    Ok(address.rsplit(':').next().unwrap_or_default().parse()?)
}

/// A target that accepts commands, and that the check can end.
pub(super) struct Host<'s> {
    fixture: &'s Fixture,
    args: Args,
    running: Option<Running>,
}

struct Running {
    commands: Commands,
    place: Place,
    /// The address at which it listens; empty until it is known.
    address: String,
}

enum Place {
    Thread(JoinHandle<Result<(), Failure>>),
    Process(Child),
    /// A process that is another program's child.
    Elsewhere,
    /// A thread of another process.
    Partner,
}

impl Host<'_> {
    /// Starts the target. If it listens on TCP, at `port`; 0 for any.
    fn start(&mut self, port: u16) -> Result<(), Failure> {
        let Fixture { subject, level, folder, .. } = self.fixture;
        let (stream, place) = match level {
            Level::Machines(mode) => {
                let address = subject.elsewhere().ok_or_else(|| Failure::new("there is no other machine"))?;
                (remote::start(address, subject.name(), port, *mode, &self.args)?, Place::Elsewhere)
            }
            Level::Processes(mode) => match subject.partner() {
                Some(address) => {
                    (remote::start(address, subject.name(), port, *mode, &self.args)?, Place::Partner)
                }
                None => {
                    let listen = address_of(subject, folder.path(), port);
                    let (child, stream) = Child::start(subject, folder.path(), listen, &self.args)?;
                    (stream, Place::Process(child))
                }
            },
            Level::Channels | Level::Threads(_) => {
                let (here, there) = UnixStream::pair()?;
                let (transport, args) = (self.fixture.target(), self.args.clone());
                let listen = address_of(subject, folder.path(), port);
                let (folder, there) = (folder.path().to_owned(), Stream::from(there));
                let thread = std::thread::Builder::new()
                    .name("target".into())
                    .spawn(move || serve(&listen, &folder, transport, &args, there))?;
                (here.into(), Place::Thread(thread))
            }
        };
        let commands = Commands::new(stream)?;
        let running = self.running.insert(Running { commands, place, address: String::new() });
        match running.commands.request(&Command::Ready) {
            Ok(lines) => {
                running.address = lines.concat();
                Ok(())
            }
            // A target that did not even start reports the reason itself.
            Err(failure) => Err(self.stop().err().unwrap_or(failure)),
        }
    }

    /// Ends the target without a message to its sources, and starts another one at the same address.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let port = port_of(self.running.as_ref().map_or("", |running| &running.address))?;
        match self.running.take() {
            Some(Running { commands, place: Place::Process(child), .. }) => {
                drop(child);
                drop(commands);
            }
            Some(Running { commands, place: Place::Elsewhere, .. }) => commands.die()?,
            Some(Running { commands, place: Place::Partner, .. }) => commands.end()?,
            running => {
                self.running = running;
                self.stop()?;
            }
        }
        self.start(port)
    }

    fn stop(&mut self) -> Result<(), Failure> {
        let Some(Running { commands, place, .. }) = self.running.take() else { return Ok(()) };
        // The target ends with its connection.
        match place {
            Place::Elsewhere | Place::Partner => commands.end(),
            Place::Thread(thread) => {
                drop(commands);
                thread.join().unwrap_or_else(|_| Err(Failure::new("the target's thread panicked")))
            }
            Place::Process(child) => {
                drop(commands);
                child.wait()
            }
        }
    }

    fn request(&mut self, command: &Command) -> Result<Vec<String>, Failure> {
        let running = self.running.as_mut().ok_or_else(|| Failure::new("the target is not running"))?;
        running.commands.request(command)
    }

    fn number(&mut self, command: &Command) -> Result<u64, Failure> {
        let lines = self.request(command)?;
        lines
            .first()
            .and_then(|line| line.parse().ok())
            .ok_or_else(|| Failure::new(format!("the target answered {lines:?}")))
    }

    /// The word at `target_args`.
    pub(super) fn word(&mut self) -> Result<u64, Failure> {
        self.number(&Command::Word)
    }

    /// Makes the target drop code; returns whether the code was in its store.
    pub(super) fn drop_code(&mut self, library: &Library) -> Result<bool, Failure> {
        let id: CodeId =
            library.images().first().ok_or_else(|| Failure::new("a library without images"))?.id();
        Ok(self.number(&Command::DropCode(id.0))? == 1)
    }

    /// The target's counters.
    pub(super) fn counts(&mut self) -> Result<Counts, Failure> {
        Counts::parse(&self.request(&Command::Counts)?)
    }

    /// The output of injected code since the last call.
    pub(super) fn printed(&mut self) -> Result<Vec<String>, Failure> {
        self.request(&Command::Printed)
    }

    /// A link to the target, over the subject's transport only.
    pub(super) fn link(&self) -> Result<Link, Failure> {
        self.link_with(|builder| builder)
    }

    /// A link with options.
    pub(super) fn link_with(&self, choose: impl FnOnce(LinkBuilder) -> LinkBuilder) -> Result<Link, Failure> {
        let transport = self.fixture.source();
        let name = transport.name().to_owned();
        let address = self.running.as_ref().map_or("", |running| &*running.address);
        let builder = Link::builder(address)
            .key(target::key())
            .with_transport(transport)
            .transport(&name)
            .mode(self.fixture.mode())
            .connect_timeout(PATIENCE)
            .send_timeout(PATIENCE);
        let link = choose(builder).connect()?;
        ensure!(link.transport() == name, "the link is over {}", link.transport());
        let rule = self.fixture.subject.rule();
        ensure!(
            link.arrival_rule() == rule,
            "the link uses {} and not {}",
            link.arrival_rule().describe(),
            rule.describe()
        );
        Ok(link)
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        // The check has noticed a failed target: it got no responses.
        if let Err(failure) = self.stop() {
            eprintln!("the target of {} ended: {failure}", self.fixture.subject.name());
        }
    }
}
