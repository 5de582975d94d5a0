//! Messages between a target and its compiler: packets over a socket (`SOCK_SEQPACKET`). Long contents travel beside
//! them, in sealed memory (`memfd_create(2)`).
//!
//! Both processes run farjump's own code, of one version: the first message names the version.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use farjump_core::cpu::{self, Cpu};
use farjump_core::image::CodeId;
use rustix::fs::{MemfdFlags, SealFlags};

/// Version of these messages.
pub const VERSION: u32 = 2;
/// Longest packet, in bytes.
pub const MAX_PACKET: usize = 16 << 10;
/// Longest text in a packet, in bytes.
const MAX_TEXT: usize = 4 << 10;
/// Longest contents in memory, in bytes.
pub const MAX_CONTENTS: usize = 256 << 20;

/// Optimisation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tier {
    /// None, so that the first call comes soon; all of it for code with writable statics, which cannot be exchanged.
    First,
    /// All of it, for the CPU.
    Optimised,
}

/// The kind of fault for which a job has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// Time, memory, or the program itself: the same job may be done later.
    Means,
    /// The bitcode: it is damaged, or code that images cannot have.
    Code,
    /// The bitcode, which does not define `NAME_main`.
    Main,
    /// LLVM, which does not know the machine.
    Machine,
}

impl Fault {
    const ALL: [Fault; 4] = [Fault::Means, Fault::Code, Fault::Main, Fault::Machine];

    /// Returns whether the same job would fail again.
    pub fn is_lasting(self) -> bool {
        self != Fault::Means
    }

    /// One byte.
    pub(crate) fn encode(self) -> u8 {
        self as u8
    }

    /// Decodes the result of [`Fault::encode`]; `None` for other bytes.
    pub(crate) fn decode(byte: u8) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.encode() == byte)
    }
}

/// A job of the compiler. The bitcode travels beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Number of the job.
    pub number: u64,
    /// Optimisation.
    pub tier: Tier,
    /// Code id of the bitcode.
    pub id: CodeId,
    /// CPU to compile for.
    pub cpu: Cpu,
    /// Time limit.
    pub deadline: Duration,
    /// Memory limit, in bytes.
    pub memory: u64,
}

/// Durations of a job's steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// From the job's start to the process that does it.
    pub fork: Duration,
    /// Reading the bitcode.
    pub parse: Duration,
    /// Optimisation and code generation.
    pub compile: Duration,
    /// Linking.
    pub link: Duration,
}

impl Times {
    fn all(&mut self) -> [&mut Duration; 4] {
        [&mut self.fork, &mut self.parse, &mut self.compile, &mut self.link]
    }

    /// The sum of the durations.
    pub fn total(mut self) -> Duration {
        self.all().iter().map(|time| **time).sum()
    }

    /// Encodes the durations as 16 bytes: a word of microseconds each.
    pub fn encode(mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (chunk, time) in bytes.chunks_exact_mut(4).zip(self.all()) {
            chunk.copy_from_slice(&u32::try_from(time.as_micros()).unwrap_or(u32::MAX).to_le_bytes());
        }
        bytes
    }

    /// Decodes the result of [`Times::encode`].
    pub fn decode(bytes: [u8; 16]) -> Times {
        let mut times = Times::default();
        for (chunk, time) in bytes.as_chunks::<4>().0.iter().zip(times.all()) {
            *time = Duration::from_micros(u32::from_le_bytes(*chunk).into());
        }
        times
    }
}

/// A message of the compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The first message: the compiler takes jobs. Has the version of its LLVM, as a number and as a text
    /// that names the file.
    Ready {
        /// Major version.
        llvm: u16,
        /// For people.
        text: String,
    },
    /// In place of [`Reply::Ready`]: the compiler cannot compile, for this reason.
    Unable(String),
    /// A job is done. The image travels beside it.
    Image {
        /// The job's number.
        number: u64,
        /// Whether the image is optimised.
        optimised: bool,
        /// True if the image was kept from an earlier job.
        kept: bool,
        /// Durations.
        times: Times,
    },
    /// A job has failed, for this reason.
    Refused {
        /// The job's number.
        number: u64,
        /// The kind of fault.
        fault: Fault,
        /// The reason, as a clause.
        text: String,
    },
}

impl Job {
    /// Encodes the job as a packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = vec![u8::from(self.tier == Tier::Optimised)];
        packet.extend(self.number.to_le_bytes());
        packet.extend(self.id.0);
        packet.extend((self.deadline.as_millis() as u64).to_le_bytes());
        packet.extend(self.memory.to_le_bytes());
        packet.extend(self.cpu.encode());
        packet
    }

    /// Decodes the result of [`Job::encode`]; `None` for other bytes.
    pub fn decode(packet: &[u8]) -> Option<Job> {
        let (&[tier], rest) = packet.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (deadline, rest) = rest.split_first_chunk()?;
        let (memory, cpu) = rest.split_first_chunk()?;
        Some(Job {
            number: u64::from_le_bytes(*number),
            tier: if tier == 0 { Tier::First } else { Tier::Optimised },
            id: CodeId(*id),
            cpu: Cpu::decode(cpu).ok()?,
            deadline: Duration::from_millis(u64::from_le_bytes(*deadline)),
            memory: u64::from_le_bytes(*memory),
        })
    }
}

// The longest job fits.
const _: () = assert!(1 + 8 + 16 + 8 + 8 + cpu::MAX_LEN <= MAX_PACKET);

impl Reply {
    /// Encodes the message as a packet.
    pub fn encode(&self) -> Vec<u8> {
        let short = |text: &str| text.bytes().take(MAX_TEXT).collect::<Vec<u8>>();
        match self {
            Reply::Ready { llvm, text } => {
                [&[0][..], &VERSION.to_le_bytes(), &llvm.to_le_bytes(), &short(text)].concat()
            }
            Reply::Unable(text) => [&[1][..], &short(text)].concat(),
            Reply::Image { number, optimised, kept, times } => {
                [&[2][..], &number.to_le_bytes(), &[(*optimised).into(), (*kept).into()], &times.encode()]
                    .concat()
            }
            Reply::Refused { number, fault, text } => {
                [&[3][..], &number.to_le_bytes(), &[fault.encode()], &short(text)].concat()
            }
        }
    }

    /// Decodes the result of [`Reply::encode`]; `None` for other bytes, also those of another version.
    pub fn decode(packet: &[u8]) -> Option<Reply> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (&kind, rest) = packet.split_first()?;
        Some(match kind {
            0 => {
                let (version, rest) = rest.split_first_chunk()?;
                let (llvm, rest) = rest.split_first_chunk()?;
                if u32::from_le_bytes(*version) != VERSION {
                    return None;
                }
                Reply::Ready { llvm: u16::from_le_bytes(*llvm), text: text(rest) }
            }
            1 => Reply::Unable(text(rest)),
            2 => {
                let (number, rest) = rest.split_first_chunk()?;
                let (&[optimised, kept], times) = rest.split_first_chunk()?;
                let times = Times::decode(times.try_into().ok()?);
                let number = u64::from_le_bytes(*number);
                Reply::Image { number, optimised: optimised != 0, kept: kept != 0, times }
            }
            3 => {
                let (number, rest) = rest.split_first_chunk()?;
                let (&fault, rest) = rest.split_first()?;
                let number = u64::from_le_bytes(*number);
                Reply::Refused { number, fault: Fault::decode(fault)?, text: text(rest) }
            }
            _ => return None,
        })
    }
}

/// Puts contents into memory that no process can change any more.
///
/// # Errors
/// The system's.
pub fn seal(contents: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("farjump-bitcode", flags)?);
    file.write_all(contents)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// Reads contents that [`seal`] made.
///
/// # Errors
/// The system's, and contents of more than [`MAX_CONTENTS`].
pub fn unseal(fd: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(fd);
    let len = file.metadata()?.len();
    if len > MAX_CONTENTS as u64 {
        return Err(io::Error::other(format!("contents of {len} bytes")));
    }
    let mut contents = vec![0; len as usize];
    // Reads by offsets: the position is shared with the process that wrote it.
    let mut at = 0;
    while at < contents.len() {
        match rustix::io::pread(&file, &mut contents[at..], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => at += read,
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farjump_core::image::{Level, Machine};

    #[test]
    fn messages_are_read_as_they_were_written() {
        let cpu = Cpu::of_level(Machine::X86_64, Level::BASELINE);
        let id = CodeId([7; 16]);
        let deadline = Duration::from_secs(3);
        let job = Job { number: 9, tier: Tier::Optimised, id, cpu, deadline, memory: 1 << 30 };
        assert_eq!(Job::decode(&job.encode()), Some(job.clone()));
        for len in 0..job.encode().len() {
            assert_ne!(Job::decode(&job.encode()[..len]), Some(job.clone()));
        }
        let times =
            Times { parse: Duration::from_micros(5), link: Duration::from_millis(3), ..Times::default() };
        let text = "it is so".to_owned();
        for reply in [
            Reply::Ready { llvm: 19, text: text.clone() },
            Reply::Unable(text.clone()),
            Reply::Image { number: 1 << 40, optimised: true, kept: false, times },
            Reply::Refused { number: 3, fault: Fault::Main, text },
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Fault::ALL.map(|fault| Fault::decode(fault.encode())), Fault::ALL.map(Some));
        assert_eq!(Fault::decode(4), None);
        assert_eq!(times.total(), Duration::from_micros(3005));
        let mut other = Reply::Ready { llvm: 19, text: String::new() }.encode();
        other[1] = 9;
        assert_eq!(Reply::decode(&other), None);
    }

    #[test]
    fn sealed_contents_cannot_be_changed() {
        let fd = seal(b"contents").unwrap();
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert_eq!(unseal(fd).unwrap(), b"contents");
    }
}
