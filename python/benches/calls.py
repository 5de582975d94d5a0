"""Calls from Python: one at a time beside a call from Rust, and a thousand in flight beside a thousand futures.

    python python/benches/calls.py --program target/release/farjump

`farjump-perf` lies beside that program (docs/reference/perf.md, "Build it").

An empty call is `echo` without arguments, over shm. The call from Rust is a round trip of `farjump perf latency
--sizes 0`, on the same two processors, in the same round. "done futures" makes a thousand futures, completes them, and
awaits them in turn. "futures" has a callback of the event loop complete each of them, as a library does that completes
futures one by one. "empty tasks" makes a thousand tasks that do nothing, and awaits them in turn.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import farjump

import common

# Calls in flight.
FLIGHT = 1000


def main() -> int:
    options = common.parser(__doc__.splitlines()[0])
    options.add_argument(
        "--calls", type=common.positive, default=20_000, metavar="N", help="calls in turn in a round [default: 20000]"
    )
    options.add_argument(
        "--flights", type=common.positive, default=20, metavar="N",
        help=f"times that {FLIGHT} calls are in flight in a round [default: 20]",
    )
    options = options.parse_args()
    with common.built(options, "integration-tests/ifuncs/echo.c") as echo, common.target(options) as (address, pid):
        with farjump.Link(address) as link:
            cases, bounds = plan(options, link, echo, pid)
            common.measure(cases, options.rounds)
    return common.report(options, cases, bounds)


def plan(options, link, echo, pid):
    """Returns the cases and their bounds."""
    rust = common.Case("call from Rust", lambda: from_rust(options, pid))
    python = common.Case("Link.call", lambda: in_turn(options, link, echo))

    def flight(name: str, fly: Callable[[farjump.Link, farjump.Library], Awaitable[None]]) -> common.Case:
        return common.Case(name, lambda: asyncio.run(flights(options.flights, fly, link, echo)))

    done, futures = flight("done futures", make_done_futures), flight("futures", make_futures)
    empty = flight("empty tasks", make_empty_tasks)
    one_task, gathered = flight("one task", await_in_turn), flight("farjump.gather", gather)
    mapped, tasks = flight("Link.map", map_all), flight("tasks", make_tasks)
    theirs = flight("asyncio.gather", gather_by_asyncio)
    bounds = [common.Bound(python, rust, plus=500)]
    bounds += [common.Bound(case, done, times=2) for case in (one_task, gathered, mapped)]
    bounds += [common.Bound(tasks, futures, times=4)]
    return [rust, python, done, futures, empty, one_task, gathered, mapped, tasks, theirs], bounds


def from_rust(options, pid) -> float:
    """Measures a round trip from Rust to another process."""
    places = common.chosen_processors(options)
    where = ["--cpus", ",".join(map(str, places)) if places else "any"]
    command = [options.program, "perf", "latency", "--sizes", "0", "--rounds", "1", "--json", *where]
    # Its two processes run on the processors of this one, which sleeps meanwhile, and of the target.
    with common.paused(pid):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["rows"] if row["subject"] == "farjump"]
    # The median is half a round trip, in microseconds.
    return rows[0]["median"] * 2 * 1e3


def in_turn(options, link, echo) -> float:
    """Measures calls one after another, and returns the median over parts of the round."""
    parts = []
    for _ in range(20):
        begun = perf_counter_ns()
        for _ in range(options.calls // 20):
            link.call(echo, b"")
        parts.append((perf_counter_ns() - begun) / (options.calls // 20))
    return statistics.median(parts)


async def flights(count: int, fly, link, echo) -> float:
    """Returns the median time of `count` flights, for each call."""
    times = []
    for _ in range(count):
        begun = perf_counter_ns()
        await fly(link, echo)
        times.append((perf_counter_ns() - begun) / FLIGHT)
    return statistics.median(times)


async def make_done_futures(_link, _echo) -> None:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(FLIGHT)]
    for future in futures:
        future.set_result(b"")
    for future in futures:
        await future


async def make_futures(_link, _echo) -> None:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(FLIGHT)]
    for future in futures:
        loop.call_soon(future.set_result, b"")
    for future in futures:
        await future


async def make_empty_tasks(_link, _echo) -> None:
    async def nothing():
        pass

    for task in [asyncio.create_task(nothing()) for _ in range(FLIGHT)]:
        await task


async def await_in_turn(link, echo) -> None:
    for pending in [link.inject(echo, b"") for _ in range(FLIGHT)]:
        await pending


async def gather(link, echo) -> None:
    await farjump.gather([link.inject(echo, b"") for _ in range(FLIGHT)])


async def map_all(link, echo) -> None:
    await link.map(echo, (b"" for _ in range(FLIGHT)))


async def make_tasks(link, echo) -> None:
    async def call():
        await link.inject(echo, b"")

    for task in [asyncio.create_task(call()) for _ in range(FLIGHT)]:
        await task


async def gather_by_asyncio(link, echo) -> None:
    await asyncio.gather(*(link.inject(echo, b"") for _ in range(FLIGHT)))


if __name__ == "__main__":
    sys.exit(main())
