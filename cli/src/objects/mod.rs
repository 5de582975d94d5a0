//! Objects of a target: their listing, and the commands that put, get and evict one.

pub(crate) mod evict;
pub(crate) mod get;
pub(crate) mod listing;
pub(crate) mod put;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::progress::{PART, Progress, Step};
use farjump_cli::program::config_arguments::{ConfigArguments, Resolved, Selection};
use farjump_cli::program::failure::{Exit, Failure};
use farjump_cli::program::units::parse_duration;
use farjump_handles::{Client, ClientConfig, Error, Handle, MAX_HANDLE};

/// Most bytes of a file with a handle: two digits a byte, with space for line breaks.
const MAX_TEXT: u64 = 4 * MAX_HANDLE as u64;

/// The options of a client, but its time limits: the command has one of its own for both.
#[derive(Debug)]
pub(crate) enum ClientOptions {}

impl Selection for ClientOptions {
    fn has(name: &str) -> bool {
        !["connect-timeout", "timeout"].contains(&name)
    }
}

// Options of all commands that connect to the owner of an object.
#[allow(missing_docs, reason = "clap shows a documentation comment as the help of the command")]
#[derive(Args, Debug)]
pub(crate) struct OwnerOptions {
    #[command(flatten)]
    client: ConfigArguments<ClientConfig, ClientOptions>,
    /// Time limit for connecting and for each request, such as 500ms or 2s
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

impl OwnerOptions {
    /// Returns the client of these options.
    ///
    /// # Errors
    /// A malformed option.
    pub(crate) fn owner(&self) -> Result<Owner, Failure> {
        let mut options = self.client.resolve()?;
        (options.config.connect_timeout, options.config.timeout) = (self.timeout, self.timeout);
        Ok(Owner(options))
    }
}

/// A client of the owner of an object.
pub(crate) struct Owner(Resolved<ClientConfig>);

impl Owner {
    /// Connects to the target at `address`.
    pub(crate) fn connect(&self, address: &str) -> Result<Client, Failure> {
        Client::builder(address).config(self.0.config.clone()).connect().map_err(|error| match error {
            Error::Link(error) => self.0.failure(error),
            error => failure(error),
        })
    }

    /// Connects to the owner of an object: at `to`, or else at the first of the handle's addresses that can
    /// be reached.
    pub(crate) fn connect_for(&self, handle: &Handle, to: Option<&str>) -> Result<Client, Failure> {
        if let Some(address) = to {
            return self.connect(address);
        }
        let mut first = None;
        for address in handle.addresses() {
            match self.connect(address) {
                Ok(client) => return Ok(client),
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
        Err(first.unwrap_or_else(|| {
            Failure::new("the handle has no address of its owner: name the owner's target with --to ADDRESS")
        }))
    }
}

/// Returns the failure of a request to a store.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::Link(error) => error.into(),
        error @ Error::TimedOut { .. } => Failure::with_exit(Exit::TimedOut, error.to_string()),
        error => Failure::new(error.to_string()),
    }
}

/// Reads up to `most` bytes of a file, or of standard input if the path is `-`.
fn read_with(path: &Path, most: u64, progress: &Progress) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut read_all = |from: &mut dyn Read| loop {
        let part = (most - bytes.len() as u64).min(PART as u64);
        match from.take(part).read_to_end(&mut bytes)? {
            0 => return Ok(()),
            read => progress.advance(read),
        }
    };
    let read = match path.to_str() {
        Some("-") => read_all(&mut io::stdin().lock()),
        _ => File::open(path).and_then(|mut file| read_all(&mut file)),
    };
    read.map_err(|error: io::Error| Failure::new(format!("cannot read `{}`: {error}", path.display())))?;
    Ok(bytes)
}

/// Reads a handle from a file, or from standard input if the path is `-`.
fn read_handle(path: &Path) -> Result<Handle, Failure> {
    let given = read_with(path, MAX_TEXT + 1, &Progress::begin(Step::counted("reading the handle", None)))?;
    let parsed = match given.len() as u64 > MAX_TEXT {
        true => Err(format!("it holds no handle: it has more than {MAX_TEXT} bytes")),
        false => parse_handle(&given),
    };
    parsed.map_err(|why| Failure::new(format!("`{}`: {why}", path.display())))
}

/// Returns a handle as a text: two hexadecimal digits for each byte.
fn show_handle(handle: &Handle) -> String {
    handle.to_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads a handle: hexadecimal digits, among which blanks and line breaks do not count, or the bytes
/// themselves.
///
/// # Errors
/// A sentence for the user.
fn parse_handle(given: &[u8]) -> Result<Handle, String> {
    if given.starts_with(b"FJH") {
        return Handle::from_bytes(given).map_err(|fault| format!("the bytes are no handle: {fault}"));
    }
    let digits: Vec<u8> = given.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        })
        .collect();
    match bytes {
        Some(bytes) if !bytes.is_empty() => {
            Handle::from_bytes(&bytes).map_err(|fault| format!("the digits are no handle: {fault}"))
        }
        _ => Err("it holds no handle: give the digits that `farjump put` printed, all of them".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farjump_handles::Store;

    #[test]
    fn a_handle_reads_back_from_its_digits_and_from_its_bytes() {
        let store =
            Store::options().capacity(4096).address("unix:/run/a.sock").build().expect("there is memory");
        let handle = store.put(b"bytes").expect("it fits");
        let text = show_handle(&handle);
        assert!(text.starts_with("464a4801"), "{text}");
        let spread = format!("  {}\n{}\n", text[..10].to_uppercase(), &text[10..]);
        for given in [text.as_bytes(), spread.as_bytes(), &handle.to_bytes()] {
            assert_eq!(parse_handle(given).as_ref(), Ok(&handle));
        }
        for (wrong, words) in [
            (&b""[..], "holds no handle"),
            (b"\n", "holds no handle"),
            (&text.as_bytes()[1..], "holds no handle"),
            (b"no digits", "holds no handle"),
            (&text.as_bytes()[2..], "do not begin with FJH"),
            (&text.as_bytes()[..60], "cut off after 30 bytes"),
            (&handle.to_bytes()[..40], "cut off after 40 bytes"),
        ] {
            let why = parse_handle(wrong).expect_err("it is none");
            assert!(why.contains(words), "{why}");
        }
    }
}
