//! The builder: what it makes of sources, objects and libraries, what it refuses, and that what it makes runs.

#[path = "../fixture/mod.rs"]
mod fixture;

mod exact;
mod images;
mod inspect;
mod large_model;
mod link_library;
mod linker_variable;
mod other_compilers;
mod platforms;
mod refusals;
mod rust;
mod samples;
mod source;
