//! The module as users see it, in each available server: Redis and Valkey are started with it in their own folders, and
//! end with the test.

mod calls;
mod clients;
mod cluster;
mod code_keys;
mod commands;
mod databases;
mod enabled;
mod eviction;
mod generations;
mod habits;
mod hardened;
mod kills;
mod later;
mod loading;
mod modules;
mod protobuf;
mod reads;
mod resp;
mod rights;
mod samples;
mod scripts;
mod server;
mod settings;
mod shown;
mod states;
mod tables;
mod transports;
mod writes;
