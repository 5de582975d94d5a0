//! The shards of a contestant, each in a process of its own. All of these processes share one processor.

use std::io;

use super::table::Table;
use crate::perf::experiments::baselines::ring::Layout;
use crate::perf::experiments::setting::Setting;
use crate::perf::process::child::Pair;
use crate::perf::process::child_protocol::ShardSpec;
use crate::perf::process::liveness::Watch;
use crate::program::failure::Failure;

/// The processes, in the order of their shards. Dropped, they end by themselves.
pub(super) struct Processes {
    pairs: Vec<Pair>,
    /// Watches all of them.
    watch: Watch,
}

impl Processes {
    /// Starts a process for each part of the table, as contestant number `contestant`.
    pub(super) fn start(
        setting: &Setting<'_>,
        transport: &str,
        table: &Table,
        contestant: usize,
    ) -> Result<Processes, Failure> {
        let mut processes = Processes { pairs: Vec::new(), watch: Watch::alone() };
        let shards = table.shards();
        for shard in 0..shards {
            let mut pair = Pair::start(setting.stage, 0, 0, None)?;
            let cpu = setting.cpus.map(|cpus| cpus.target);
            let offers = pair.set(setting.set(&[], cpu, Layout::without_rings(0)));
            processes.pairs.push(pair);
            let transport = transport.to_owned();
            let spec = ShardSpec { transport, contestant, shard, shards, log2: table.log2() };
            offers.and_then(|_| processes.pairs[shard].be_shard(spec)).map_err(|why| of(shard, &why))?;
        }
        let failed =
            |error: io::Error| Failure::new(format!("the processes of shards cannot be watched: {error}"));
        processes.watch = Watch::of_all(processes.pairs.iter().map(Pair::watch)).map_err(failed)?;
        Ok(processes)
    }

    /// Runs `act`, whose messages go over a wire of `wire` nanoseconds. Returns its result, and the messages that the
    /// shards have handled since they were made.
    pub(super) fn while_served<T>(
        &mut self,
        wire: u64,
        act: impl FnOnce(&Watch) -> Result<T, Failure>,
    ) -> Result<(T, u64), Failure> {
        self.each(|pair| pair.set_wire(wire))?;
        let acted = act(&self.watch);
        // A failure there may be the cause of one here.
        let handled = self.each(Pair::handled)?;
        Ok((acted?, handled.iter().sum()))
    }

    /// Ends all of them, and waits for that.
    ///
    /// # Errors
    /// One has failed.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        while let Some(pair) = self.pairs.pop() {
            pair.end().map_err(|why| of(self.pairs.len(), &why))?;
        }
        Ok(())
    }

    fn each<T>(&mut self, ask: impl Fn(&mut Pair) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        let asked = |(shard, pair)| ask(pair).map_err(|why| of(shard, &why));
        self.pairs.iter_mut().enumerate().map(asked).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.pairs.iter_mut().for_each(Pair::dismiss);
    }
}

fn of(shard: usize, why: &Failure) -> Failure {
    Failure::new(format!("the process of shard {shard}: {why}"))
}
