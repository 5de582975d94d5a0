//! The contestants of a run: each has shards on the other thread or in processes, and a client on this thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump::{Library, Mode};

use super::client::{Chases, Client};
use super::gets::{Gets, Loads, NoShards};
use super::injected::Variant;
#[cfg(feature = "ucx")]
use super::messages::{self, Messages};
use super::processes::Processes;
use super::server::{Polled, Server};
use super::table::Table;
use super::wire;
use crate::perf::experiments::setting::Setting;
use crate::perf::options::ifuncs;
use crate::perf::process::liveness::Watch;
use crate::perf::process::place;
use crate::perf::report::metric::Against;
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
    pub(super) shards_in: ShardsIn,
    pub(super) against: Option<Against>,
    /// The player, or the reason why it is missing.
    pub(super) player: Result<Player, String>,
}

/// A contestant that can be measured.
pub(super) struct Player {
    // Dropped before the shards.
    pub(super) client: Box<dyn Client>,
    pub(super) shards: Shards,
    /// Messages that the shards should have handled; `None` if they see none.
    pub(super) handled: Option<u64>,
}

/// The place of a contestant's shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShardsIn {
    /// All on the thread of the server.
    Thread,
    /// Each in a process of its own.
    Processes,
}

impl ShardsIn {
    pub(super) fn name(self) -> &'static str {
        match self {
            ShardsIn::Thread => "thread",
            ShardsIn::Processes => "processes",
        }
    }
}

/// The shards of a contestant.
pub(super) enum Shards {
    /// Those of the server with this number.
    Polled(usize),
    Processes(Processes),
}

impl Shards {
    /// Runs `act` while the shards serve, with a wire of `wire` nanoseconds.
    pub(super) fn while_served<T>(
        &mut self,
        server: &Server,
        wire: u64,
        act: impl FnOnce(&Watch) -> Result<T, Failure>,
    ) -> Result<(T, Polled), Failure> {
        wire::set(wire);
        match self {
            Shards::Polled(number) => server.while_polled(*number, || act(&Watch::alone())),
            Shards::Processes(processes) => {
                let (acted, handled) = processes.while_served(wire, act)?;
                Ok((acted, Polled { handled, is_settled: true }))
            }
        }
    }
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
                let variant = Variant {
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
                        Err(crate::perf::not_built_with("bitcode"))
                    }
                    Some(why) if is_bitcode => Err(why.clone()),
                    _ => match inject(&variant, table, &library, &mut server) {
                        // Where there is no compiler, no target takes bitcode.
                        Err(failure) if is_bitcode => Err(failure.to_string()),
                        Err(failure) => return Err(failure),
                        Ok(player) => Ok(player),
                    },
                };
                let mode = if is_bitcode { "bitcode" } else { mode.name() };
                all.push(Contestant::farjump(transport, mode, ShardsIn::Thread, player));
            }
        }
        if let Some(transport) = setting.transports.first().filter(|_| modes.contains(&Mode::Cached)) {
            let player = in_processes(setting, transport, all.len(), table, &library, &server);
            let (mode, player) = (Mode::Cached.name(), player.map_err(|why| why.to_string()));
            all.push(Contestant::farjump(transport, mode, ShardsIn::Processes, player));
        }
        for against in against {
            let player = match against {
                Against::Load => {
                    let shards = server.add(Box::new(|| Ok(Box::new(NoShards))))?;
                    Ok(Player {
                        client: Box::new(Gets::new(Loads(table.clone()), table.log2())),
                        shards: Shards::Polled(shards),
                        handled: None,
                    })
                }
                _ => over_ucx(*against, table, &library, &mut server, most).map_err(|why| why.to_string()),
            };
            let against = Some(*against);
            let name = against.map_or("", Against::name);
            let (transport, mode, shards_in) = (None, None, ShardsIn::Thread);
            all.push(Contestant { name, transport, mode, shards_in, against, player });
        }
        Ok(Contestants { all, server })
    }

    /// Ends all clients and shards.
    ///
    /// # Errors
    /// A process has failed.
    pub(super) fn end(self) -> Result<(), Failure> {
        for player in self.all.into_iter().filter_map(|one| one.player.ok()) {
            drop(player.client);
            if let Shards::Processes(processes) = player.shards {
                processes.end()?;
            }
        }
        Ok(())
    }
}

impl Contestant {
    fn farjump(
        transport: &str,
        mode: &'static str,
        shards_in: ShardsIn,
        player: Result<Player, String>,
    ) -> Contestant {
        let transport = Some(transport.to_owned());
        Contestant { name: "farjump", transport, mode: Some(mode), shards_in, against: None, player }
    }
}

/// Sets up targets on the server's thread, and makes all connections between them.
fn inject(
    variant: &Variant,
    table: &Arc<Table>,
    library: &Library,
    server: &mut Server,
) -> Result<Player, Failure> {
    let (of_shards, tables) = (variant.clone(), table.clone());
    let shards = server.add(Box::new(move || of_shards.shards(tables)))?;
    connect(variant, Shards::Polled(shards), table, library, server)
}

/// Sets up targets like `inject`, for the code in mode cached, with a process for each target.
fn in_processes(
    setting: &Setting<'_>,
    transport: &str,
    number: usize,
    table: &Arc<Table>,
    library: &Library,
    server: &Server,
) -> Result<Player, Failure> {
    let variant = Variant::cached(transport, setting.stage.folder(), setting.options.ring(), number);
    let processes = Processes::start(setting, transport, table, number)?;
    connect(&variant, Shards::Processes(processes), table, library, server)
}

/// Connects a client to the shards, and the shards to each other.
fn connect(
    variant: &Variant,
    mut shards: Shards,
    table: &Table,
    library: &Library,
    server: &Server,
) -> Result<Player, Failure> {
    let mut hopping = variant.client(table, library)?;
    shards.while_served(server, 0, |_| variant.connect(&mut hopping, table.shards()))?;
    let mut player = Player { client: Box::new(hopping), shards, handled: Some(0) };
    warm_up(&mut player, table, server)?;
    Ok(player)
}

/// Runs chases that are not measured, until all code is in its last form.
fn warm_up(player: &mut Player, table: &Table, server: &Server) -> Result<(), Failure> {
    let (count, depth) = WARM_UP;
    let begun = Instant::now();
    loop {
        let chases = table.chases(depth, count, 0);
        let all = Chases { chases: &chases, outstanding: 1, log2: table.log2() };
        let Player { client, shards, .. } = player;
        let (_, polled) = shards.while_served(server, 0, |watch| all.run(&mut **client, watch))?;
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
            Player { client: Box::new(client), shards: Shards::Polled(shards), handled: Some(0) }
        }
        _ => {
            let (make, offers) = messages::memories(table.clone());
            let shards = server.add(make)?;
            let len = size_of_val(table.part(0));
            let gets = messages::gets(&offers.recv().map_err(missing)?, len)?;
            let client = Box::new(Gets::new(gets, table.log2()));
            Player { client, shards: Shards::Polled(shards), handled: None }
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
    Err(Failure::new(crate::perf::not_built_with("ucx")))
}
