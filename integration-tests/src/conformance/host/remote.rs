//! Targets on another machine. A program there starts them at the request of this one. If it can start no processes,
//! it plays them itself, in threads.
//!
//! A connection is one target. The requester writes the target's role, in lines, and the file that is its data, if
//! any. The program there responds `started` or `refused: WHY`. From then on the connection carries commands
//! (`control.rs`) to the target until there are no more. The program writes `ended: STATUS` behind the last response.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use farjump::Mode;

use super::child::{self, Role};
use super::target::{Args, give, serve};
use super::{PATIENCE, Stream};
use crate::conformance::failure::{Failure, ensure};
use crate::conformance::libraries::libraries;
use crate::conformance::subject::Subject;

/// Longest file for a target, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// Longest line of a request, in bytes.
const MAX_LINE: u64 = 256;
/// Time that a connection without a request is kept.
const IDLE: Duration = Duration::from_secs(10);
/// Prefix of a refusal.
const REFUSED: &str = "refused: ";
/// The response for a started target.
const STARTED: &str = "started";
/// The status of a target that ended properly.
const PLAYED: &str = "played";
/// Interval of the checks for a connection.
const LOOK: Duration = Duration::from_millis(1);

/// A requested target.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    /// Name of the subject.
    subject: String,
    /// The TCP port to listen at; 0 for any.
    port: u16,
    /// Whether it has the libraries itself.
    local: bool,
    /// The bytes of the file that is its data; without one the data is a word.
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

/// Requests a target from the program that serves at `address`. `port` is the port to listen at, 0 for any.
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
        // No other bytes come before the first command, so this reads only the response.
        let mut reply = String::new();
        BufReader::new(&stream).take(4 * MAX_LINE).read_line(&mut reply)?;
        ensure!(reply.trim_end() == STARTED, "{}", reply.trim_end());
        Ok(stream.into())
    };
    ask().map_err(place)
}

/// Starts targets for all peers that connect to `listener`, and does not return. `again` returns the arguments with
/// which this program runs the subject of a name ([`Subject::between_processes`](super::Subject::between_processes)),
/// if there is such a subject.
///
/// **A peer that reaches `listener` can run anything in these targets.** There is no key: use it on a cable
/// that connects only the two machines of a test.
///
/// # Errors
/// When connections can no longer be accepted. Errors of one connection go to its peer, and to standard error.
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

/// Plays targets of `subject` in threads of this process for all peers that connect to `listener`, until `ended`
/// returns `true`; it is called about every millisecond. This is for processes that cannot be started one by one,
/// such as the ranks of an MPI job ([`Subject::partnered_by`]). All requesters must be gone by then: the function
/// waits for targets in use.
///
/// **A peer that reaches `listener` can run anything in this process.** There is no key.
///
/// # Errors
/// When connections can no longer be accepted. Errors of one connection go to its peer, and to standard
/// error.
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

/// A requested target, with its prepared folder.
struct Order {
    subject: String,
    listen: SocketAddr,
    args: Args,
}

impl Order {
    /// Reads the request from `stream`, and prepares `folder`.
    fn take(stream: &TcpStream, folder: &Path) -> Result<Order, Failure> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        // The requester waits for a response before it writes more, so this reads no bytes for the target.
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

/// Reports to the requester whether there is a target now, and returns it.
fn announced<T>(begun: Result<T, Failure>, mut stream: &TcpStream) -> Result<T, Failure> {
    match &begun {
        Ok(_) => writeln!(stream, "{STARTED}")?,
        Err(failure) => writeln!(stream, "{REFUSED}{}", in_a_line(failure))?,
    }
    begun
}

fn in_a_line(failure: &Failure) -> String {
    failure.to_string().replace('\n', " ")
}

/// Starts the requested target of `stream`, and waits for its end.
fn attend(
    mut stream: TcpStream,
    again: &impl Fn(&str) -> Option<Vec<std::ffi::OsString>>,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let begin = || -> Result<std::process::Child, Failure> {
        let Order { subject, listen, args } = Order::take(&stream, folder.path())?;
        let arguments = again(&subject).ok_or_else(|| Failure::new(format!("no subject {subject:?}")))?;
        let listen = format!("tcp:{listen}");
        let role = Role { subject: &subject, folder: folder.path(), args: &args, listen };
        let program = child::own_program()?;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        Ok(child::give_role(command.args(arguments), &role, stream.try_clone()?).spawn()?)
    };
    let mut target = announced(begin(), &stream)?;
    // The stream stays open until then, so that the requester reads its end when nothing of the target is left.
    let status = target.wait()?;
    let word = if child::played(status) { PLAYED.to_owned() } else { status.to_string() };
    // The requester may be gone.
    drop(writeln!(stream, "ended: {word}"));
    Ok(())
}

/// Plays the requested target of `stream`, to its end.
fn play(mut stream: TcpStream, subject: &Subject) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let begin = || -> Result<Order, Failure> {
        let order = Order::take(&stream, folder.path())?;
        ensure!(order.subject == subject.name(), "no subject {:?}", order.subject);
        Ok(order)
    };
    let Order { listen, args, .. } = announced(begin(), &stream)?;
    let pair = subject.make();
    let asked: Stream = stream.try_clone()?.into();
    let played = serve(&format!("tcp:{listen}"), folder.path(), pair.target, &args, asked);
    let played = played.and_then(|()| {
        let wrong = pair.keep.verdict();
        ensure!(wrong.is_empty(), "the transport says that core broke the contract: {}", wrong.join("; "));
        Ok(())
    });
    let word = played.as_ref().map_or_else(in_a_line, |()| PLAYED.to_owned());
    // The requester may be gone.
    drop(stream.set_nonblocking(false).and_then(|()| writeln!(stream, "ended: {word}")));
    played
}
