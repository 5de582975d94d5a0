//! The target of a check: polls, sleeps, and responds to commands.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farjump::{CodeId, Data, Key, Library, Mode, Target, TargetBuilder, WaitPolicy};
use farjump_core::transport::Transport;
use farjump_core::wait::{Turn, Waiter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};

use super::control::{Command, CommandReceiver, Counts, Received};
use super::{PATIENCE, Stream};
use crate::conformance::failure::Failure;

/// Bytes of a source's mailbox: small, so that it wraps often, and large enough for payloads of 64 KiB.
pub(crate) const MAILBOX: usize = 256 << 10;
/// Longest accepted payload, in bytes. It is less than the default, for which slow devices take seconds.
pub(crate) const MAX_PAYLOAD: usize = 16 << 20;
/// Size of the arena, in bytes. A target touches all of it first, which on a slow machine takes longer than many a
/// check.
const ARENA_SIZE: usize = 1 << 20;
/// Polls that ran something between two checks for commands.
const BUSY: u32 = 512;

/// The data at `target_args`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Args {
    /// A word, 0 at first.
    Word,
    /// This file, as `struct farjump_data`.
    File(PathBuf),
}

/// Folder of the libraries that a target has itself, inside the target's own; only in mode local.
const LOCAL: &str = "local";

/// Puts libraries into the folder of a target, which then has them itself.
pub(super) fn give(folder: &Path, files: &[(String, Vec<u8>)]) -> Result<(), Failure> {
    let local = folder.join(LOCAL);
    std::fs::create_dir(&local)?;
    for (name, bytes) in files {
        std::fs::write(local.join(name), bytes)?;
    }
    Ok(())
}

/// The libraries in the folder of a target.
fn given(folder: &Path) -> Result<Vec<Library>, Failure> {
    let local = folder.join(LOCAL);
    if !local.exists() {
        return Ok(Vec::new());
    }
    let mut libraries = Vec::new();
    for entry in std::fs::read_dir(local)? {
        libraries.push(Library::open(entry?.path())?);
    }
    Ok(libraries)
}

/// The key of targets that listen at TCP addresses. It is no secret: a peer that reaches a target has been admitted
/// before.
pub(super) fn key() -> Key {
    Key::from_bytes(*b"for a cable between two machines")
}

/// Serves at `address` until the other end of `stream` is closed; `folder` is the target's own.
pub(super) fn serve(
    address: &str,
    folder: &Path,
    transport: Box<dyn Transport>,
    args: &Args,
    stream: Stream,
) -> Result<(), Failure> {
    let name = transport.name().to_owned();
    let local = given(folder)?;
    let listen = || -> TargetBuilder<'_> {
        let target = Target::listen(address)
            .key(key())
            .with_transport(transport)
            .transport(&name)
            .export("printf", printf as unsafe extern "C" fn(_, _, _, _, _) -> _)
            .modes(Mode::ALL)
            .mailbox_size(MAILBOX)
            .max_payload(MAX_PAYLOAD)
            .arena_size(ARENA_SIZE)
            .handshake_timeout(PATIENCE)
            // A cable between busy emulated machines carries less than a MiB in a second.
            .stall_timeout(PATIENCE);
        local.iter().fold(target, |target, library| target.local(library))
    };
    match args {
        Args::Word => {
            let mut word = 0_u64;
            let mut target = listen().args(&mut word).build()?;
            serve_commands(&mut target, stream, |target| target.args_mut::<u64>().copied().unwrap_or(0))
        }
        Args::File(path) => {
            let mut data = Data::open(path)?;
            let mut target = listen().args(&mut data).build()?;
            serve_commands(&mut target, stream, |_| 0)
        }
    }
}

fn serve_commands<'a>(
    target: &mut Target<'a>,
    stream: Stream,
    word: impl Fn(&mut Target<'a>) -> u64,
) -> Result<(), Failure> {
    let mut receiver = CommandReceiver::new(stream)?;
    let mut waiter = Waiter::new(WaitPolicy::for_cores(2, 2));
    let mut busy = 0;
    loop {
        if target.poll()? != 0 {
            waiter.reset();
            busy += 1;
            if busy % BUSY != 0 {
                continue;
            }
        } else {
            match waiter.turn() {
                Turn::Again | Turn::Event => continue,
                Turn::Yield => std::thread::yield_now(),
                Turn::Sleep => sleep(target, &receiver)?,
            }
        }
        match receiver.look()? {
            Received::Nothing => {}
            Received::End => return Ok(()),
            Received::Command(command) => {
                let reply = reply(target, command, &word);
                receiver.respond(&reply)?;
            }
        }
    }
}

fn reply<'a>(
    target: &mut Target<'a>,
    command: Command,
    word: &impl Fn(&mut Target<'a>) -> u64,
) -> Vec<String> {
    match command {
        Command::Ready => vec![target.address()],
        Command::Word => vec![word(target).to_string()],
        Command::DropCode(id) => vec![u8::from(target.drop_code(&CodeId(id))).to_string()],
        Command::Counts => {
            let (stats, sources) = (target.stats(), target.sources() as u64);
            let (calls, images, links) = (stats.calls, stats.images_linked, stats.links);
            Counts { calls, images, links, refusals: stats.refusals(), sources }.to_lines()
        }
        Command::Printed => PRINTED.take(),
        Command::Die => {
            // As with a kill from outside, nothing is closed or sent before.
            let _ = kill_process(getpid(), Signal::KILL);
            Vec::new()
        }
    }
}

/// Sleeps as a program does that also waits for other events: here, commands.
fn sleep(target: &mut Target<'_>, receiver: &CommandReceiver) -> Result<(), Failure> {
    let slept = match target.arm()? {
        None => Ok(0),
        Some(longest) => {
            let longest = longest.min(Duration::from_secs(60));
            let timeout =
                Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
            let watched = [target.as_fd(), receiver.as_fd()];
            poll(&mut watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), Some(&timeout))
        }
    };
    target.disarm();
    match slept {
        // Handles system events now rather than after many polls.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(target.wait(Duration::ZERO).map(|_| ())?),
        Err(error) => Err(error.into()),
    }
}

thread_local! {
    /// The output of code that was injected into this thread's target.
    static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Stands for printf with hello's four arguments: they travel in registers whether a function is variadic or not.
unsafe extern "C" fn printf(
    format: *const c_char,
    len: c_int,
    name: *const u8,
    time: *const c_char,
    reply: c_int,
) -> c_int {
    // SAFETY: hello passes zero-terminated strings, and a name of that length.
    let (format, name, time) = unsafe {
        (CStr::from_ptr(format), std::slice::from_raw_parts(name, len as usize), CStr::from_ptr(time))
    };
    let text = format
        .to_string_lossy()
        .replacen("%.*s", &String::from_utf8_lossy(name), 1)
        .replacen("%s", &time.to_string_lossy(), 1)
        .replacen("%d", &reply.to_string(), 1);
    PRINTED.with_borrow_mut(|printed| printed.push(text.trim_end_matches('\n').to_owned()));
    text.len() as c_int
}
