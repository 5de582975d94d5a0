//! The server: takes jobs, and runs them in children, first images before optimised ones.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use farjump_core::bitcode::BitcodeView;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::cache::{Cache, key};
use super::compile::Refusal;
use super::job::Working;
use super::limits;
use super::llvm::Llvm;
use crate::protocol::{self, Fault, Job, MAX_PACKET, Reply, Tier};

/// Most jobs that run at the same time.
const AT_ONCE: usize = 2;

/// The target's end of the connection.
fn socket() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Sends a message without contents.
pub(super) fn send_reply(reply: &Reply) -> bool {
    send(reply, None)
}

fn send(reply: &Reply, contents: Option<&OwnedFd>) -> bool {
    let fds: Vec<BorrowedFd<'_>> = contents.into_iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    loop {
        match rustix::net::sendmsg(
            socket(),
            &[IoSlice::new(&reply.encode())],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Takes jobs until the target is gone.
pub(super) fn serve(llvm: &Llvm, folder: Option<&Path>) -> ExitCode {
    limits::note_address_space();
    let cache = match Cache::new(folder) {
        Ok(cache) => cache,
        Err(problem) => {
            send_reply(&Reply::Unable(problem));
            return ExitCode::FAILURE;
        }
    };
    let host = format!("{} {}", llvm.host.0.to_string_lossy(), llvm.host.1.to_string_lossy());
    let mut server = Server { llvm, host, cache, waiting: VecDeque::new(), working: Vec::new() };
    send_reply(&Reply::Ready { llvm: llvm.major(), text: llvm.text().to_owned() });
    while server.turn() {}
    // Children end with this process.
    ExitCode::SUCCESS
}

struct Server<'l> {
    llvm: &'l Llvm,
    /// This machine's CPU in LLVM's words.
    host: String,
    cache: Cache,
    waiting: VecDeque<(Job, Vec<u8>)>,
    working: Vec<Working>,
}

impl Server<'_> {
    /// Waits for an event and handles it; `false` if the target is gone.
    fn turn(&mut self) -> bool {
        let left = self.working.iter().map(Working::left).min();
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let (socket_is_due, due): (bool, Vec<bool>) = {
            let own = socket();
            let mut fds = vec![PollFd::new(&own, PollFlags::IN)];
            let pipes: Vec<_> = self.working.iter().map(Working::as_fd).collect();
            fds.extend(pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            let due = |fd: &PollFd<'_>| !fd.revents().is_empty();
            (due(&fds[0]), fds[1..].iter().map(due).collect())
        };
        for index in (0..self.working.len()).rev() {
            let is_done = due[index] && self.working[index].read();
            if is_done || self.working[index].left().is_zero() {
                let working = self.working.swap_remove(index);
                self.end(working);
            }
        }
        if socket_is_due && !self.take() {
            return false;
        }
        self.begin();
        true
    }

    /// Takes a job; `false` if the target is gone.
    fn take(&mut self) -> bool {
        let mut packet = [0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut slices = [IoSliceMut::new(&mut packet)];
        let len = match rustix::net::recvmsg(socket(), &mut slices, &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let contents = fds.flatten().last();
        // The target has closed its end, or another program has that end.
        let Some(job) = Job::decode(&packet[..len]) else { return false };
        let contents = contents.ok_or_else(|| "it came without its bitcode".to_owned());
        let contents = contents.and_then(|fd| protocol::unseal(fd).map_err(|error| error.to_string()));
        match contents.and_then(|contents| self.check(&contents).map(|()| contents)) {
            Ok(contents) => self.accept(job, contents),
            Err(text) => return send_reply(&Reply::Refused { number: job.number, fault: Fault::Code, text }),
        }
        true
    }

    /// Makes the checks that need no LLVM.
    fn check(&self, contents: &[u8]) -> Result<(), String> {
        let bitcode = BitcodeView::new_checked(contents).map_err(|error| error.to_string())?;
        if bitcode.llvm() > self.llvm.major() {
            return Err(format!(
                "it was written by LLVM {}, and the target has {}: build it by an older compiler, or install a newer LLVM \
                 at the target",
                bitcode.llvm(),
                self.llvm.text()
            ));
        }
        Ok(())
    }

    fn accept(&mut self, job: Job, contents: Vec<u8>) {
        if let Some((optimised, image)) = self.kept(&job) {
            self.done(&job, optimised, true, protocol::Times::default(), &image);
        } else if job.tier == Tier::First {
            let behind = self.waiting.iter().take_while(|(job, _)| job.tier == Tier::First).count();
            self.waiting.insert(behind, (job, contents));
        } else {
            self.waiting.push_back((job, contents));
        }
    }

    /// The best kept image for a job: an optimised one serves for a first one too.
    fn kept(&mut self, job: &Job) -> Option<super::cache::Kept> {
        let optimised = Job { tier: Tier::Optimised, ..job.clone() };
        let keys = [&optimised, job].map(|job| key(job, self.llvm.text(), &self.host));
        keys.iter().find_map(|key| self.cache.get(key))
    }

    /// Begins as many jobs as may run at the same time, but keeps one child free for first images.
    fn begin(&mut self) {
        while self.working.len() < AT_ONCE
            && let Some((job, _)) = self.waiting.front()
            && (job.tier == Tier::First || self.working.iter().all(|one| one.job.tier == Tier::First))
            && let Some((job, contents)) = self.waiting.pop_front()
        {
            let number = job.number;
            match Working::begin(self.llvm, job, &contents) {
                Ok(working) => self.working.push(working),
                Err(error) => {
                    let text = format!("the compiler cannot begin: {error}");
                    send_reply(&Reply::Refused { number, fault: Fault::Means, text });
                }
            }
        }
    }

    fn end(&mut self, working: Working) {
        let job = working.job.clone();
        match working.end() {
            Ok(result) => {
                let of_tier =
                    Job { tier: if result.optimised { Tier::Optimised } else { Tier::First }, ..job.clone() };
                let key = key(&of_tier, self.llvm.text(), &self.host);
                self.done(&job, result.optimised, false, result.times, &result.image);
                self.cache.add(key, (result.optimised, result.image));
            }
            Err(Refusal { fault, text }) => {
                send_reply(&Reply::Refused { number: job.number, fault, text });
            }
        }
    }

    fn done(&self, job: &Job, optimised: bool, kept: bool, times: protocol::Times, image: &[u8]) {
        let number = job.number;
        match protocol::seal(image) {
            Ok(contents) => send(&Reply::Image { number, optimised, kept, times }, Some(&contents)),
            Err(error) => {
                let text = format!("no memory for its image: {error}");
                send_reply(&Reply::Refused { number, fault: Fault::Means, text })
            }
        };
    }
}
