//! The loader: its memory, images that are placed and run, libraries that are opened, and what it refuses.

#[path = "../child/mod.rs"]
mod child;
#[path = "../code/mod.rs"]
mod code;
#[cfg(feature = "build")]
#[path = "../fixture/mod.rs"]
mod fixture;

mod arena;
#[cfg(feature = "build")]
mod debugger;
mod eviction;
#[cfg(target_arch = "aarch64")]
mod landing_pads;
mod library;
#[cfg(feature = "build")]
mod own_linker;
mod sealed;
mod store;
mod wanted;
