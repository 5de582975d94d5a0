//! The program `farjump`, run as its users run it. Every test has a folder of its own, and every process a watchdog.

mod asking;
mod building;
mod crashing;
mod crowding;
mod demonstrating;
mod elsewhere;
mod examining;
mod exporting;
mod iceoryx;
mod injecting;
mod invoking;
mod keyed;
mod large;
mod limiting;
mod measuring;
mod namespaces;
mod networks;
mod paths;
mod plotting;
mod ports;
mod rings;
mod samples;
#[cfg(feature = "tcp")]
mod sealing;
mod seeing;
mod serving;
mod sleeping;
#[cfg(feature = "ucx")]
mod ucx;
#[cfg(feature = "ucx")]
mod versions;
mod wanting;
mod workbench;
mod working;
