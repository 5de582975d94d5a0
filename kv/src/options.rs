//! The arguments of `loadmodule`.

use std::path::PathBuf;
use std::time::Duration;

use farjump::{CodeId, Keys};

/// The clients that may load code by `FJ.LOAD`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayLoad {
    /// No client.
    No,
    /// Clients on this machine.
    Local,
    /// All clients whose user the server's rules permit.
    Yes,
}

impl MayLoad {
    pub(crate) fn name(self) -> &'static str {
        match self {
            MayLoad::No => "no",
            MayLoad::Local => "local",
            MayLoad::Yes => "yes",
        }
    }
}

/// The module's settings.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Address of the target: `unix:PATH` or `tcp:HOST:PORT`.
    pub(crate) address: String,
    /// File with the keys of sources over TCP.
    pub(crate) key_file: Option<PathBuf>,
    /// The only transport, by name.
    pub(crate) transport: Option<String>,
    /// Time for which the target still polls after work.
    pub(crate) linger: Duration,
    /// Whether the server's loop never sleeps.
    pub(crate) spin: bool,
    /// The server's user as which links act.
    pub(crate) user: String,
    /// Names of keys of links, and the users as which links with these keys act.
    pub(crate) key_users: Vec<(String, String)>,
    pub(crate) load: MayLoad,
    /// File with the key that authenticates code in keys.
    pub(crate) code_key: Option<PathBuf>,
    /// Ids of the permitted code. Empty if all code is permitted.
    pub(crate) allow: Vec<CodeId>,
    /// Capacity for placed code in bytes.
    pub(crate) code_capacity: usize,
    /// Size of a source's mailbox in bytes.
    pub(crate) mailbox: usize,
    /// Most sources at a time.
    pub(crate) max_links: usize,
    /// Time of a turn after which the log reports it.
    pub(crate) limit: Duration,
}

/// Time of functions after which the log reports them.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_secs(1);
/// Longest time to linger: commands of clients wait meanwhile.
pub(crate) const LONGEST_LINGER: Duration = Duration::from_millis(1);

impl Options {
    /// Parses arguments on a machine with this number of processors. Returns the settings, and warnings.
    ///
    /// # Errors
    /// The fault in an argument, and a remedy.
    pub(crate) fn parse(args: &[Vec<u8>], processors: usize) -> Result<(Options, Vec<String>), String> {
        let mut words =
            Words { args: args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect() };
        words.args.reverse();
        let address = words.args.pop().ok_or(
            "no address is given: write `loadmodule farjump-kv.so unix:/run/redis/farjump.sock`, or tcp:HOST:PORT",
        )?;
        if !(address.starts_with("unix:") || address.starts_with("tcp:")) {
            return Err(format!(
                "the first argument is {address:?}: give the address there, as unix:PATH or tcp:HOST:PORT"
            ));
        }
        let mut options = Options {
            address,
            key_file: None,
            transport: None,
            linger: Duration::ZERO,
            spin: false,
            user: "default".to_owned(),
            key_users: Vec::new(),
            load: MayLoad::No,
            code_key: None,
            allow: Vec::new(),
            code_capacity: 1 << 20,
            mailbox: 256 << 10,
            max_links: 256,
            limit: DEFAULT_LIMIT,
        };
        let mut key_users = Vec::new();
        while let Some(word) = words.args.pop() {
            match &*word {
                "key" => options.key_file = Some(words.value("key", "a file")?.into()),
                "transport" => options.transport = Some(words.value("transport", "a transport's name")?),
                "linger" => options.linger = Duration::from_micros(words.number("linger", "microseconds")?),
                "spin" => options.spin = true,
                "user" => options.user = words.value("user", "the name of a user of the server")?,
                "key-user" => {
                    let key =
                        words.value("key-user", "the name of a key, and that of a user of the server")?;
                    let user = words.value(&format!("key-user {key}"), "the name of a user of the server")?;
                    if key_users.iter().any(|(named, _)| *named == key) {
                        return Err(format!("key-user {key} is given twice: a link acts as one user"));
                    }
                    key_users.push((key, user));
                }
                "load" => {
                    options.load = match &*words.value("load", "no, local or yes")? {
                        "no" => MayLoad::No,
                        "local" => MayLoad::Local,
                        "yes" => MayLoad::Yes,
                        other => return Err(format!("load {other:?} is unknown: write no, local or yes")),
                    }
                }
                "code-key" => options.code_key = Some(words.value("code-key", "a file")?.into()),
                "allow" => {
                    let id = words.value("allow", "a code id of 32 hexadecimal digits")?;
                    options.allow.push(parse_id(&id)?);
                }
                "code-room" => options.code_capacity = words.size("code-room")?,
                "mailbox" => options.mailbox = words.size("mailbox")?,
                "max-links" => options.max_links = words.size("max-links")?,
                "limit" => options.limit = Duration::from_millis(words.number("limit", "milliseconds")?),
                other => {
                    return Err(format!(
                        "the argument {other:?} is unknown: write one of key, transport, linger, spin, user, key-user, \
                         load, code-key, allow, code-room, mailbox, max-links, limit"
                    ));
                }
            }
        }
        if options.linger > LONGEST_LINGER {
            return Err(format!(
                "linger {} is too long, as clients wait meanwhile: give at most {} microseconds",
                options.linger.as_micros(),
                LONGEST_LINGER.as_micros()
            ));
        }
        if options.key_file.is_some() && !options.address.starts_with("tcp:") {
            return Err(
                "key applies to tcp: addresses alone: leave it away, or listen at tcp:HOST:PORT".to_owned()
            );
        }
        options.key_users = key_users;
        if !options.key_users.is_empty() && options.key_file.is_none() {
            return Err(
                "key-user needs links that come by a key: listen at tcp:HOST:PORT with `key FILE`".to_owned()
            );
        }
        let mut warnings = Vec::new();
        if processors < 2 && (options.spin || !options.linger.is_zero()) {
            (options.spin, options.linger) = (false, Duration::ZERO);
            warnings.push(
                "linger and spin are off: with one processor they would keep sources from running".to_owned(),
            );
        }
        Ok((options, warnings))
    }
}

impl Options {
    /// Warnings of keys that `key-user` names and the key file does not have. A file that cannot be read keeps the target
    /// from listening, which is reported elsewhere.
    pub(crate) fn unknown_keys(&self) -> Vec<String> {
        let Some((file, keys)) = self.key_file.as_ref().and_then(|file| Some((file, Keys::read(file).ok()?)))
        else {
            return Vec::new();
        };
        let has = |name: &str| keys.iter().any(|key| key.name.as_deref() == Some(name));
        let unknown = self.key_users.iter().filter(|(name, _)| !has(name));
        let warn = |(name, user): &(String, String)| {
            format!(
                "key-user {name} {user}: {} had no key of that name when the module was loaded: add one by `farjump key`, \
                 or correct the name",
                file.display()
            )
        };
        unknown.map(warn).collect()
    }
}

/// The arguments left, the last one first.
struct Words {
    args: Vec<String>,
}

impl Words {
    fn value(&mut self, name: &str, what: &str) -> Result<String, String> {
        self.args.pop().ok_or_else(|| format!("{name} has no value: write {what} behind it"))
    }

    fn number(&mut self, name: &str, unit: &str) -> Result<u64, String> {
        let text = self.value(name, &format!("a number of {unit}"))?;
        text.parse().map_err(|_| format!("{name} {text:?} is no number: write one of {unit}"))
    }

    fn size(&mut self, name: &str) -> Result<usize, String> {
        match self.number(name, "units")? {
            0 => Err(format!("{name} 0 leaves nothing: give a larger number")),
            number => usize::try_from(number).map_err(|_| format!("{name} {number} is too large")),
        }
    }
}

/// Parses a code id.
fn parse_id(text: &str) -> Result<CodeId, String> {
    let mut id = [0; 16];
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (index, byte) in id.iter_mut().enumerate().filter(|_| digits) {
        *byte = u8::from_str_radix(&text[2 * index..][..2], 16).unwrap_or_default();
    }
    match digits {
        true => Ok(CodeId(id)),
        false => Err(format!(
            "allow {text:?} is no code id: write 32 hexadecimal digits, as `farjump inspect` shows them"
        )),
    }
}
