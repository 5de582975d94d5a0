#![doc = include_str!("../README.md")]
//!
//! # Contents
//! | to | see |
//! |---|---|
//! | inject | [`Library::open`], [`Link::connect`], [`Link::inject`] |
//! | call with types | [`Library::typed`], [`Link::call`] |
//! | be injected into | [`Target::listen`], [`Target::poll`] |
//! | look into a target that runs | [`admin`] |
//! | bring frames in a buffer of your own | [`buffer`] |
//! | await calls, and serve as a task | [`Pending`], [`SharedLink`], [`Target::run_async`], `docs/guide/embedding.md` |
//! | set options by name, or read them | [`config`] |
//! | choose where a function runs: at its data, or here | [`placement`] |
//! | give a target a store of objects | `farjump-handles`, [`objects`] |
//! | match on errors | [`error`] |
//! | write a transport | [`farjump_core::transport`] and `docs/guide/writing-a-transport.md` |

#![deny(missing_docs)]

pub mod admin;
pub mod buffer;
pub mod config;
mod data;
pub mod error;
mod executor;
mod forward_limits;
mod link;
mod mode;
pub mod objects;
mod open_channel;
pub mod placement;
mod policy;
mod principals;
mod refusal;
mod serve;
mod stats;
mod stored_image;
#[cfg(feature = "tokio")]
mod tokio;
pub mod transports;
mod wait;

pub use config::{LinkConfig, TargetConfig};
pub use data::Data;
pub use error::{
    Awaited, CallError, ConnectError, Error, GoneCause, InPlaceFault, IncompleteReply, InjectError, Limited,
    Mailbox, Part, ReplyLength, ServeError, SystemError, SystemOperation, WaitError,
};
pub use executor::{
    CodeTable, Executor, ExecutorBuilder, Export, ExportFn, LastCall, OwnCode, at_call_end, caller,
    caller_number, hold_reply, principal, principal_number, reply,
};
pub use farjump_control::{
    Grant, Key, Keys, Limits, NamedKey, PassedOver, PeerIdentity, RefusalCause, Rights, end_process,
};
pub use farjump_core::code::CodeKind;
pub use farjump_core::cpu::Cpu;
pub use farjump_core::image::{CodeId, FamilyId, Level, Machine, Platform, PlatformError};
pub use farjump_core::transport::ArrivalRules;
pub use farjump_core::wait::WaitPolicy;
pub use farjump_loader::{
    Library, LibraryIdentity, LibraryImage, OtherType, Shape, Signature, TypedArgs, TypedFunction, TypedPart,
    TypedReply,
};
pub use link::{
    Batch, DrivenByThread, Ended, Group, HeldLink, Link, LinkBuilder, LinkPath, LinkStats, MemoryRead,
    Patience, Pending, Reply, SharedLink, SharedPending, SharedTypedPending, Sleeper, TypedPending,
};
pub use mode::Mode;
pub use principals::Principal;
pub use refusal::Refusal;
pub use serve::{Stopper, Target, TargetBuilder, TargetThread};
pub use stats::{Stats, StoreStats};
pub use stored_image::StoredImage;

#[cfg(feature = "build")]
pub use link::{CompiledImage, KeptCause, PeerCompiler};

#[cfg(feature = "build")]
pub use farjump_builder::{self as build, inspect};
pub use farjump_core as core;
/// For the types of typed calls: `#[derive(IntoBytes, Immutable)]` for arguments and `#[derive(FromBytes)]` for
/// replies. The feature `derive` has the derives, which need `#[zerocopy(crate = "farjump::zerocopy")]`.
pub use zerocopy;

/// Returns the name of this program's executable. It allocates no memory of the path's length, on which the addresses
/// of a link's later allocations would depend.
fn program_name() -> String {
    let mut path = [const { std::mem::MaybeUninit::uninit() }; 4096];
    let path = rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self/exe", &mut path);
    let path = path.map(|(path, _)| &*path).unwrap_or_default();
    match path.rsplit(|byte| *byte == b'/').next() {
        Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
        _ => "farjump".into(),
    }
}

/// Fills `bytes` from the system's random generator.
fn random(bytes: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(error::system(error::SystemOperation::Random))?;
    }
    Ok(())
}

/// Tests of memory use read its counter.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: farjump_fixtures::allocation::Counting = farjump_fixtures::allocation::Counting;
