//! A client of the server's protocol, over its Unix socket or a port of the loopback.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use farjump_fixtures::process::PATIENCE;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Status(String),
    Error(String),
    Integer(i64),
    /// In the third version of the protocol; its text.
    Double(String),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Value>),
}

impl Value {
    /// Returns the next reply in `from`. `None` at its end.
    pub(crate) fn read(from: &mut impl BufRead) -> Option<Value> {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().expect("a number follows");
        Some(match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Integer(number()),
            "," => Value::Double(rest.to_owned()),
            "$" => match usize::try_from(number()) {
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    from.read_exact(&mut bytes).ok()?;
                    bytes.truncate(len);
                    Value::Bulk(bytes)
                }
                Err(_) => Value::Nil,
            },
            // A map has two elements for each of its own.
            "*" | "%" => match usize::try_from(number()) {
                Ok(len) => {
                    let len = if kind == "%" { 2 * len } else { len };
                    Value::Array((0..len).map(|_| Value::read(from)).collect::<Option<_>>()?)
                }
                Err(_) => Value::Nil,
            },
            other => panic!("{other:?} is no type of the protocol"),
        })
    }

    /// The text of a status, an error, a number with digits behind its point, or a bulk string.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Status(text) | Value::Error(text) | Value::Double(text) => text.clone(),
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?} has no text"),
        }
    }

    /// The text of an error.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        match self {
            Value::Error(text) => text,
            other => panic!("{other:?} is no error"),
        }
    }

    /// Checks that the reply is no error.
    #[track_caller]
    pub(crate) fn worked(self) -> Value {
        assert!(!matches!(self, Value::Error(_)), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn elements(&self) -> &[Value] {
        match self {
            Value::Array(elements) => elements,
            other => panic!("{other:?} is no array"),
        }
    }
}

/// An array of bulk strings.
pub(crate) fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend_from_slice(word);
        request.extend(b"\r\n");
    }
    request
}

/// A connection.
pub(crate) struct Client {
    stream: BufReader<File>,
}

impl Client {
    /// Connects. `None` if no server listens yet.
    pub(crate) fn connect(socket: &Path) -> Option<Client> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        Some(Client::over(stream.into()))
    }

    /// Connects by a port of the loopback.
    #[track_caller]
    pub(crate) fn connect_to(port: u16) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens there");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        Client::over(stream.into())
    }

    fn over(stream: OwnedFd) -> Client {
        Client { stream: BufReader::new(File::from(stream)) }
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send(&mut self, words: &[&[u8]]) {
        let request = encoded(words);
        self.stream.get_mut().write_all(&request).expect("the server reads");
    }

    /// Returns the next reply. `None` if the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Value> {
        Value::read(&mut self.stream)
    }

    /// Runs a command.
    #[track_caller]
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Value {
        self.send(words);
        self.reply().expect("the server replies")
    }

    /// Runs a command, given as words between spaces.
    #[track_caller]
    pub(crate) fn say(&mut self, command: &str) -> Value {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.run(&words)
    }

    /// A field of INFO.
    #[track_caller]
    pub(crate) fn info(&mut self, section: &str, field: &str) -> Option<String> {
        let text = self.say(&format!("INFO {section}")).text();
        let mut lines = text.lines();
        let start = format!("{field}:");
        lines.find_map(|line| line.strip_prefix(&start).map(|value| value.trim_end().to_owned()))
    }
}
