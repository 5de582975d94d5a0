//! Targets on another machine: a program there starts them for whoever asks, and this one asks. Where none can be started, the program
//! that is asked plays them itself, in threads.
//!
//! A connection is one target. Who asks writes what it is to be, in lines, and the file that the target shows, if it shows one. The
//! program there answers `started` or `refused: WHY`. From then on the connection is the target's, which answers questions
//! (`commands.rs`) until there are no more; the program writes `ended: STATUS` behind its last answer.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use farjump::Mode;

use super::child::{self, Post, Role};
use super::serve::{Args, give, serve};
use super::{PATIENCE, Stream};
use crate::conformance::failure::{Failure, ensure};
use crate::conformance::libraries::libraries;
use crate::conformance::subject::Subject;

/// Longest file that a target is given, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// Longest line of a request, in bytes.
const MAX_LINE: u64 = 256;
/// How long a connection that asks for nothing is kept.
const IDLE: Duration = Duration::from_secs(10);
/// What stands before the words in which a target is not given.
const REFUSED: &str = "refused: ";
/// What a target is told to have been given by.
const STARTED: &str = "started";
/// What is told of one that ended as it should.
const PLAYED: &str = "played";
/// How long nobody looks for a connection.
const LOOK: Duration = Duration::from_millis(1);

/// A target that somebody wants.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    /// Of which subject.
    subject: String,
    /// The TCP port where it is to listen; 0 for any.
    port: u16,
    /// Whether it is to have the libraries itself.
    local: bool,
    /// The bytes of the file that it shows; a word unless there is one.
    file: Option<Vec<u8>>,
}

impl Wanted {
    fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let Wanted { subject, port, local, file } = self;
        write!(to, "{subject}\n{port}\n{local}\n")?;
        match file {
            None => writeln!(to, "word"),
            Some(bytes) => {
                writeln!(to, "{}", bytes.len())?;
                to.write_all(bytes)
            }
        }
    }

    fn read(from: &mut impl BufRead) -> Result<Wanted, Failure> {
        let mut line = || -> Result<String, Failure> {
            let mut line = String::new();
            from.take(MAX_LINE).read_line(&mut line)?;
            ensure!(line.ends_with('\n'), "a line that does not end in {MAX_LINE} bytes: {line:?}");
            line.pop();
            Ok(line)
        };
        let (subject, port, local, file) = (line()?, line()?.parse()?, line()?.parse()?, line()?);
        let file = match &*file {
            "word" => None,
            len => {
                let len: u64 = len.parse()?;
                ensure!(len <= MAX_FILE, "a file of {len} bytes, and not of at most {MAX_FILE}");
                let mut bytes = Vec::new();
                from.take(len).read_to_end(&mut bytes)?;
                ensure!(bytes.len() as u64 == len, "{} bytes of a file of {len}", bytes.len());
                Some(bytes)
            }
        };
        Ok(Wanted { subject, port, local, file })
    }
}

/// Has a target started by the program that serves at `address`. `port` is where it is to listen, 0 for any.
pub(super) fn start(
    address: SocketAddr,
    subject: &str,
    port: u16,
    mode: Mode,
    args: &Args,
) -> Result<Stream, Failure> {
    let place = |failure: Failure| failure.at(format!("a target at {address}"));
    let file = match args {
        Args::Word => None,
        Args::File(path) => Some(fs::read(path)?),
    };
    let wanted = Wanted { subject: subject.to_owned(), port, local: mode == Mode::Local, file };
    let ask = || -> Result<Stream, Failure> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = Vec::new();
        wanted.write(&mut request)?;
        stream.write_all(&request)?;
        // Nothing else comes before the first question, so nothing is read that is not for here.
        let mut answer = String::new();
        BufReader::new(&stream).take(4 * MAX_LINE).read_line(&mut answer)?;
        ensure!(answer.trim_end() == STARTED, "{}", answer.trim_end());
        Ok(stream.into())
    };
    ask().map_err(place)
}

/// Starts targets for whoever connects to `listener`, and does not return; `again` gives for a subject's name the arguments with which
/// this program runs it ([`Subject::between_processes`](super::Subject::between_processes)), if it has such a subject.
///
/// **Who reaches `listener` has whatever he likes run in these targets.** Nobody is asked for a key: it is for a cable that only
/// the two machines of a test are on.
///
/// # Errors
/// When nobody can be accepted any more. What goes wrong with one connection is told to who made it, and on standard error.
pub fn serve_targets(
    listener: &TcpListener,
    again: impl Fn(&str) -> Option<Vec<std::ffi::OsString>> + Sync,
) -> Result<(), Failure> {
    thread::scope(|scope| {
        loop {
            let (stream, from) = listener.accept()?;
            let again = &again;
            scope.spawn(move || {
                if let Err(failure) = attend(stream, again) {
                    eprintln!("a target for {from}: {failure}");
                }
            });
        }
    })
}

/// Has threads of this process play targets of `subject` for whoever connects to `listener`, until `ended` says so; that is asked
/// about every millisecond. For processes that cannot be started one by one, such as the ranks of an MPI job
/// ([`Subject::partnered_by`]). Who asks no more has to be gone by then: targets that are still asked are waited for.
///
/// **Who reaches `listener` has whatever he likes run in this process.** Nobody is asked for a key.
///
/// # Errors
/// When nobody can be accepted any more. What goes wrong with one connection is told to who made it, and on standard error.
pub fn serve_threads(
    listener: &TcpListener,
    subject: &Subject,
    mut ended: impl FnMut() -> bool,
) -> Result<(), Failure> {
    listener.set_nonblocking(true)?;
    thread::scope(|scope| {
        while !ended() {
            match listener.accept() {
                Ok((stream, from)) => {
                    _ = scope.spawn(move || {
                        if let Err(failure) = play(stream, subject) {
                            eprintln!("a target for {from}: {failure}");
                        }
                    })
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

/// A target that is asked for, with its folder furnished.
struct Order {
    subject: String,
    listen: SocketAddr,
    args: Args,
}

impl Order {
    /// Reads it from `stream`, and puts into `folder` what the target is to have.
    fn take(stream: &TcpStream, folder: &Path) -> Result<Order, Failure> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        // Who asks waits for an answer before it writes more: nothing of the target's is read here.
        let wanted = Wanted::read(&mut BufReader::new(stream))?;
        stream.set_read_timeout(None)?;
        if wanted.local {
            give(folder, &libraries()?.files)?;
        }
        let args = match wanted.file {
            None => Args::Word,
            Some(bytes) => {
                let path = folder.join("file");
                fs::write(&path, bytes)?;
                Args::File(path)
            }
        };
        let listen = SocketAddr::new(stream.local_addr()?.ip(), wanted.port);
        Ok(Order { subject: wanted.subject, listen, args })
    }
}

/// Tells who asked whether there is a target now, and gives it back.
fn told<T>(begun: Result<T, Failure>, mut stream: &TcpStream) -> Result<T, Failure> {
    match &begun {
        Ok(_) => writeln!(stream, "{STARTED}")?,
        Err(failure) => writeln!(stream, "{REFUSED}{}", in_a_line(failure))?,
    }
    begun
}

fn in_a_line(failure: &Failure) -> String {
    failure.to_string().replace('\n', " ")
}

/// Starts the target that is asked for by `stream`, and sees it to its end.
fn attend(
    mut stream: TcpStream,
    again: &impl Fn(&str) -> Option<Vec<std::ffi::OsString>>,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let begin = || -> Result<std::process::Child, Failure> {
        let Order { subject, listen, args } = Order::take(&stream, folder.path())?;
        let arguments = again(&subject).ok_or_else(|| Failure::new(format!("no subject {subject:?}")))?;
        let role = Role { subject: &subject, folder: folder.path(), args: &args, post: Post::Tcp(listen) };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(OwnedFd::from(stream.try_clone()?));
        Ok(child::give_role(&mut command, &role).spawn()?)
    };
    let mut target = told(begin(), &stream)?;
    // Held open until then, so that the other side reads of its end when there is nothing left of it.
    let status = target.wait()?;
    let word = if child::played(status) { PLAYED.to_owned() } else { status.to_string() };
    // Who asked may be gone.
    drop(writeln!(stream, "ended: {word}"));
    Ok(())
}

/// Plays the target that is asked for by `stream`, to its end.
fn play(mut stream: TcpStream, subject: &Subject) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let begin = || -> Result<Order, Failure> {
        let order = Order::take(&stream, folder.path())?;
        ensure!(order.subject == subject.name(), "no subject {:?}", order.subject);
        Ok(order)
    };
    let Order { listen, args, .. } = told(begin(), &stream)?;
    let pair = subject.make();
    let asked: Stream = stream.try_clone()?.into();
    let played = serve(&format!("tcp:{listen}"), folder.path(), pair.target, &args, asked);
    let played = played.and_then(|()| {
        let wrong = pair.keep.verdict();
        ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
        Ok(())
    });
    let word = played.as_ref().map_or_else(in_a_line, |()| PLAYED.to_owned());
    // Who asked may be gone.
    drop(stream.set_nonblocking(false).and_then(|()| writeln!(stream, "ended: {word}")));
    played
}
