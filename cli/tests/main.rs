//! The program `farjump`, run as its users do. Every test has its own folder, and every process a watchdog.

#[cfg(feature = "bitcode")]
mod bitcode;
mod broken_tools;
mod build;
#[cfg(all(feature = "tcp", feature = "bitcode"))]
mod cards;
#[cfg(feature = "tcp")]
mod clear;
mod compile_for_peer;
#[cfg(feature = "bitcode")]
mod compiler_found;
#[cfg(feature = "bitcode")]
mod confined;
mod crash_reports;
mod debuggers;
mod demo;
mod denied_calls;
mod doctor;
mod documents;
mod dynamic_linker;
mod endings;
mod export;
mod forks;
mod inject;
mod invocation;
#[cfg(feature = "bitcode")]
mod languages;
#[cfg(feature = "bitcode")]
mod making;
mod networks;
mod objects;
mod options;
mod paths;
mod perf;
mod ports;
mod process_limits;
mod samples;
mod serve;
mod serve_limits;
mod signals;
mod store_stats;
mod tcp_key;
mod temporary;
mod truncated;
#[cfg(feature = "ucx")]
mod ucx;
#[cfg(feature = "ucx")]
mod ucx_tcp;
mod user_namespaces;
#[cfg(feature = "ucx")]
mod versions;
mod wanted_libraries;
mod workbench;
