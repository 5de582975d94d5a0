//! A client of little cost: requests are made beforehand, and replies are read into one buffer that stays.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;

use farjump_benches::rounds::Result;
use farjump_fixtures::process::PATIENCE;

/// The bytes of a command.
pub(crate) use crate::resp::encoded as request;

/// A part of a reply, as the place of its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A status or an integer.
    Line(Range<usize>),
    /// A bulk string.
    Bulk(Range<usize>),
    /// No value.
    Nil,
    /// An array.
    Array(Vec<Part>),
}

/// A connection to the server's Unix socket.
pub(crate) struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// The part of the buffer that was received and not yet parsed.
    unread: Range<usize>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not listen.
    pub(crate) fn connect(socket: &Path) -> Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { stream, buffer: vec![0; 64 << 10], unread: 0..0 })
    }

    /// Sends commands.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(requests)?)
    }

    /// Waits for the next reply. Its parts are valid until the next one is read.
    ///
    /// # Errors
    /// An error that the server replied, anything that is no reply, and when the connection has ended.
    pub(crate) fn reply(&mut self) -> Result<Part> {
        // The parts of the earlier reply have been read.
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        self.part()
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::reply`].
    #[inline]
    pub(crate) fn run(&mut self, request: &[u8]) -> Result<Part> {
        self.send(request)?;
        self.reply()
    }

    /// Runs a command that replies a bulk string, and reads as hiredis does: 16 KiB at a time into a growing buffer,
    /// from which the caller gets a copy.
    ///
    /// # Errors
    /// When the reply is no bulk string, and when the connection has ended.
    pub(crate) fn run_as_hiredis(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request)?;
        let (mut all, mut piece) = (Vec::new(), [0; 16 << 10]);
        loop {
            let read = match self.stream.read(&mut piece) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            all.extend_from_slice(&piece[..read]);
            let Some(line) = all.iter().take(32).position(|&byte| byte == b'\n') else { continue };
            let len = all[..line].strip_prefix(b"$").map(<[u8]>::trim_ascii);
            let len = len.and_then(|len| std::str::from_utf8(len).ok()?.parse::<usize>().ok());
            let len = len.ok_or("the server replied no bulk string")?;
            if all.len() >= line + 1 + len + 2 {
                return Ok(all[line + 1..][..len].to_vec());
            }
        }
    }

    /// Sends commands together and reads their replies.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::reply`].
    pub(crate) fn pipeline(
        &mut self,
        requests: &[u8],
        count: usize,
        mut each: impl FnMut(&Client, Part),
    ) -> Result<()> {
        self.send(requests)?;
        for _ in 0..count {
            let part = self.reply()?;
            each(self, part);
        }
        Ok(())
    }

    /// The bytes of a part.
    pub(crate) fn bytes(&self, part: &Part) -> &[u8] {
        match part {
            Part::Line(range) | Part::Bulk(range) => &self.buffer[range.clone()],
            Part::Nil | Part::Array(_) => &[],
        }
    }

    fn part(&mut self) -> Result<Part> {
        let line = self.line()?;
        let kind = self.buffer[line.start];
        let rest = line.start + 1..line.end;
        let text = String::from_utf8_lossy(&self.buffer[rest.clone()]);
        let number =
            || text.parse::<i64>().map_err(|_| format!("{text:?} of the server's reply is no number"));
        match kind {
            b'+' | b':' => Ok(Part::Line(rest)),
            b'-' => Err(format!("the server replied: {text}").into()),
            b'$' => match usize::try_from(number()?) {
                Ok(len) => {
                    let start = self.unread.start;
                    self.need(len + 2)?;
                    self.unread.start = start + len + 2;
                    Ok(Part::Bulk(start..start + len))
                }
                Err(_) => Ok(Part::Nil),
            },
            b'*' => match usize::try_from(number()?) {
                Ok(len) => Ok(Part::Array((0..len).map(|_| self.part()).collect::<Result<_>>()?)),
                Err(_) => Ok(Part::Nil),
            },
            other => Err(format!("{:?} begins no reply", char::from(other)).into()),
        }
    }

    /// The next line, without its end. It has at least one byte.
    fn line(&mut self) -> Result<Range<usize>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(len) = unread[searched..].iter().position(|&byte| byte == b'\n') {
                let start = self.unread.start;
                self.unread.start += searched + len + 1;
                let end = (self.unread.start - 2).max(start);
                return if end > start {
                    Ok(start..end)
                } else {
                    Err("the server sent an empty line".into())
                };
            }
            searched = unread.len();
            self.need(searched + 1)?;
        }
    }

    /// Reads until `len` bytes are unread.
    fn need(&mut self, len: usize) -> Result<()> {
        let wanted = self.unread.start + len;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted.max(2 * self.buffer.len()), 0);
        }
        while self.unread.end < wanted {
            match self.stream.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Err("the server has closed the connection".into()),
                Ok(read) => self.unread.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
