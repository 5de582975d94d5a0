//! The loader: its memory, images that are placed and run, libraries that are opened, and what it refuses.

#[path = "../code/mod.rs"]
mod code;
#[path = "../../builder/tests/fixture/mod.rs"]
mod fixture;

mod arena;
mod debugger;
mod eviction;
#[cfg(target_arch = "aarch64")]
mod landing_pads;
mod library;
mod sealed;
mod store;
mod wanted;
