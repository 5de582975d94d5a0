//! The contestants of a run: each has shards on the other thread, and a client on this one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump::{Library, Mode};

use super::client::{Chases, Client};
use super::gets::{Gets, Loads, NoShards};
use super::injected::Way;
#[cfg(feature = "ucx")]
use super::messages::{self, Messages};
use super::server::Server;
use super::table::Table;
use super::wire;
use crate::perf::ifuncs;
use crate::perf::liveness::Watch;
use crate::perf::metric::Against;
use crate::perf::place;
use crate::perf::setting::Setting;
use crate::program::bundled_ifuncs::Source;
use crate::program::failure::Failure;

/// Chases before all measurements, which make every shard send to every other: so many over so many words.
const WARM_UP: (usize, u32) = (64, 256);
/// Time limit for compiling bitcode.
const COMPILING: Duration = Duration::from_secs(60);

/// The reason why transports over TCP are missing.
pub(super) const NO_STREAMS: &str = "chase is measured between targets whose sockets have names";

/// A contestant.
pub(super) struct Contestant {
    /// `farjump`, or the name of a baseline.
    pub(super) name: &'static str,
    pub(super) transport: Option<String>,
    /// The mode of farjump, or `bitcode`.
    pub(super) mode: Option<&'static str>,
    pub(super) against: Option<Against>,
    /// Or the reason why it is missing.
    pub(super) player: Result<Player, String>,
}

/// A contestant that can be measured.
pub(super) struct Player {
    pub(super) client: Box<dyn Client>,
    /// The number of its shards.
    pub(super) shards: usize,
    /// Messages that the shards should have handled; `None` if they see none.
    pub(super) handled: Option<u64>,
}

/// All contestants, in the order of measuring.
pub(super) struct Contestants {
    // The clients are dropped before the shards.
    pub(super) all: Vec<Contestant>,
    pub(super) server: Server,
}

impl Contestants {
    /// Sets up all contestants. `most` is the number of chases under way at most.
    pub(super) fn set(
        setting: &Setting<'_>,
        table: &Arc<Table>,
        mut server: Server,
        modes: &[Mode],
        against: &[Against],
        most: usize,
    ) -> Result<Contestants, Failure> {
        let source = Source { name: "chase", text: include_str!("chase.c") };
        let (library, no_bitcode) = ifuncs::build_with_bitcode(source, setting.stage)?;
        let mut all = Vec::new();
        for transport in setting.transports {
            let forms = modes.iter().map(|mode| (*mode, false)).chain([(Mode::Cached, true)]);
            for (mode, is_bitcode) in forms {
                let way = Way {
                    transport: transport.clone(),
                    mode,
                    is_bitcode,
                    folder: setting.stage.folder().to_owned(),
                    mailbox: setting.options.ring(),
                    number: all.len(),
                };
                let player = match &no_bitcode {
                    _ if place::is_stream(transport) => Err(NO_STREAMS.to_owned()),
                    _ if is_bitcode && cfg!(not(feature = "bitcode")) => {
                        Err("this program was built without it: build with --features bitcode".to_owned())
                    }
                    Some(why) if is_bitcode => Err(why.clone()),
                    _ => match inject(&way, table, &library, &mut server) {
                        // Where there is no compiler, no target takes bitcode.
                        Err(failure) if is_bitcode => Err(failure.to_string()),
                        Err(failure) => return Err(failure),
                        Ok(player) => Ok(player),
                    },
                };
                let mode = if is_bitcode { "bitcode" } else { mode.name() };
                let transport = Some(transport.clone());
                all.push(Contestant { name: "farjump", transport, mode: Some(mode), against: None, player });
            }
        }
        for against in against {
            let player = match against {
                Against::Load => {
                    let shards = server.add(Box::new(|| Ok(Box::new(NoShards))))?;
                    Ok(Player {
                        client: Box::new(Gets::new(Loads(table.clone()), table.log2())),
                        shards,
                        handled: None,
                    })
                }
                _ => over_ucx(*against, table, &library, &mut server, most).map_err(|why| why.to_string()),
            };
            let against = Some(*against);
            let name = against.map_or("", Against::name);
            all.push(Contestant { name, transport: None, mode: None, against, player });
        }
        Ok(Contestants { all, server })
    }
}

/// Sets up targets, and makes all connections between them.
fn inject(way: &Way, table: &Arc<Table>, library: &Library, server: &mut Server) -> Result<Player, Failure> {
    let (of_shards, tables) = (way.clone(), table.clone());
    let shards = server.add(Box::new(move || of_shards.shards(tables)))?;
    let mut hopping = way.client(table, library)?;
    server.while_polled(shards, || way.connect(&mut hopping, table.shards()))?;
    let mut player = Player { client: Box::new(hopping), shards, handled: Some(0) };
    warm_up(&mut player, table, server)?;
    Ok(player)
}

/// Runs chases that are not measured, until all code is in its last form.
fn warm_up(player: &mut Player, table: &Table, server: &Server) -> Result<(), Failure> {
    let (count, depth) = WARM_UP;
    let begun = Instant::now();
    wire::set(0);
    loop {
        let chases = table.chases(depth, count, 0);
        let all = Chases { chases: &chases, outstanding: 1, log2: table.log2() };
        let (_, polled) =
            server.while_polled(player.shards, || all.run(&mut *player.client, &Watch::alone()))?;
        player.handled = player.handled.map(|_| polled.handled);
        if polled.is_settled {
            return Ok(());
        }
        if begun.elapsed() > COMPILING {
            return Err(Failure::new("the bitcode is not compiled in time"));
        }
    }
}

#[cfg(feature = "ucx")]
fn over_ucx(
    against: Against,
    table: &Arc<Table>,
    library: &Library,
    server: &mut Server,
    most: usize,
) -> Result<Player, Failure> {
    let missing = |_| Failure::new("its shards cannot be made");
    let mut player = match against {
        Against::UcxAm => {
            let client = Messages::new(table, library, most)?;
            let (make, addresses) = client.shards(table.clone(), library, most)?;
            let shards = server.add(make)?;
            client.connect(&addresses.recv().map_err(missing)?)?;
            Player { client: Box::new(client), shards, handled: Some(0) }
        }
        _ => {
            let (make, offers) = messages::memories(table.clone());
            let shards = server.add(make)?;
            let len = size_of_val(table.part(0));
            let gets = messages::gets(&offers.recv().map_err(missing)?, len)?;
            Player { client: Box::new(Gets::new(gets, table.log2())), shards, handled: None }
        }
    };
    warm_up(&mut player, table, server)?;
    Ok(player)
}

#[cfg(not(feature = "ucx"))]
fn over_ucx(
    _against: Against,
    _table: &Arc<Table>,
    _library: &Library,
    _server: &mut Server,
    _most: usize,
) -> Result<Player, Failure> {
    Err(Failure::new("this program was built without UCX: build with --features ucx"))
}
