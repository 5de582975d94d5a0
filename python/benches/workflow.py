"""A workflow of tasks in other processes: data in the messages, by ProxyStore's file connector, and by farjump.

    python python/benches/workflow.py --program target/release/farjump --plot workflow.svg

Each task gets an array, reads one item of each page, and returns a number. Tasks do nothing else, as in ProxyStore's paper.
The processes are those of `concurrent.futures`, and of Dask if that is installed. `--plot` needs matplotlib.
"""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter_ns
from typing import Any

import numpy as np

import common

try:
    from proxystore.connectors.file import FileConnector
    from proxystore.store import Store
except ModuleNotFoundError:
    raise SystemExit("a workflow needs ProxyStore: pip install proxystore") from None
from farjump.proxystore import FarjumpConnector, FarjumpStore

SIZES = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000]
# Items of 8 bytes in a page.
PAGE = 512


def task(data) -> float:
    """Reads one item of each page."""
    return float(np.asarray(data)[::PAGE].sum())


def main() -> int:
    options = common.parser(__doc__.splitlines()[0])
    options.add_argument("--sizes", type=sizes, default=SIZES, metavar="A,B,...", help="bytes of each task's array")
    options.add_argument("--tasks", type=common.positive, default=8, metavar="N", help="tasks in a round [default: 8]")
    options.add_argument("--plot", metavar="FILE", help="draw the times of a task by size, as an SVG or a PNG")
    options = options.parse_args()
    options.cpus = []
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="farjump-bench-", dir="/dev/shm"))
        address, _ = stack.enter_context(common.target(options, "--objects", str(1 << 30), spins=False))
        files = stack.enter_context(Store("workflow-files", FileConnector(f"{folder}/files"), cache_size=0, register=True))
        ours = stack.enter_context(FarjumpStore("workflow", FarjumpConnector(address), register=True))
        ways: dict[str, Callable[[Any], Any]] = {
            "in the message": lambda data: data, "file connector": files.proxy, "farjump": ours.proxy,
        }
        for name, run in executors(stack, folder):
            for size in options.sizes:
                rows += measured(options, name, run, ways, size)
    if options.json:
        print(json.dumps({"machine": common.machine(options), "rows": rows}, indent=2))
    else:
        report(options, rows)
    if options.plot:
        plot(options.plot, rows)
    return 0


def sizes(text: str) -> list[int]:
    return [common.positive(one) for one in text.split(",")]


def executors(stack: contextlib.ExitStack, folder: str) -> Iterator[tuple[str, Callable[[list[Any]], list[float]]]]:
    """Yields executors with two other processes: the name, and a call that runs tasks and returns their results."""
    context = multiprocessing.get_context("spawn")
    pool = stack.enter_context(ProcessPoolExecutor(2, mp_context=context))
    yield "concurrent.futures", lambda data: list(pool.map(task, data))
    if importlib.util.find_spec("distributed") is None:
        print("left out: Dask: there is no package distributed", file=sys.stderr)
        return
    import dask
    from distributed import Client, LocalCluster

    # The scheduler runs in this process. `submit` resolves proxies here. A log of the scheduler's last messages would keep the
    # objects of evicted proxies.
    stack.enter_context(dask.config.set({"distributed.admin.low-level-log-length": 0}))
    cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=folder))
    client = stack.enter_context(Client(cluster))
    yield "Dask", lambda data: client.gather([client.submit(task, one, pure=False) for one in data])


def measured(options, executor, run, ways, size) -> list[dict[str, Any]]:
    """Returns the time of a task of this size by each method, in interleaved rounds. The first round does not count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    count = max(1, min(options.tasks, 400_000_000 // size))
    for number in range(options.rounds + 1):
        for way, pass_on in ways.items():
            arrays = [np.full(max(size // 8, 1), float(index)) for index in range(count)]
            begun = perf_counter_ns()
            passed = [pass_on(array) for array in arrays]
            results = run(passed)
            took = (perf_counter_ns() - begun) / count
            assert results == [task(array) for array in arrays], (executor, way, size)
            evict(passed)
            if number > 0:
                times[way].append(took / 1e3)
    return [
        {
            "executor": executor, "way": way, "bytes": size, "tasks": count, "median_us": statistics.median(figures),
            "of_message": statistics.median(one / other for one, other in zip(figures, times["in the message"])),
            "of_files": statistics.median(one / other for one, other in zip(figures, times["file connector"])),
        }
        for way, figures in times.items()
    ]


def evict(passed: list[Any]) -> None:
    """Frees the memory of the objects."""
    from proxystore.proxy import Proxy, get_factory

    for one in passed:
        if type(one) is Proxy:
            factory = get_factory(one)
            factory.get_store().evict(factory.key)


def report(options, rows) -> None:
    print(", ".join(f"{name} {value}" for name, value in common.machine(options).items()))
    print(f"\nus for a task, medians of {options.rounds} rounds, and the rounds' ratios\n")
    common.table([("executor", "way", "bytes", "us", "of the message's", "of the files'")] + [
        (
            row["executor"], row["way"], str(row["bytes"]), f"{row['median_us']:.0f}", f"{row['of_message']:.2f}",
            f"{row['of_files']:.2f}",
        )
        for row in rows
    ])


def plot(path: str, rows: list[dict[str, Any]]) -> None:
    """Draws a panel for each executor, with a line for each method."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["executor"] for row in rows))
    figure, panels = pyplot.subplots(1, len(names), figsize=(5 * len(names), 4), sharey=True, squeeze=False)
    for panel, name in zip(panels[0], names):
        for way in dict.fromkeys(row["way"] for row in rows):
            points = [(row["bytes"], row["median_us"]) for row in rows if row["executor"] == name and row["way"] == way]
            panel.loglog(*zip(*points), marker="o", label=way)
        panel.set(title=name, xlabel="bytes of a task", ylabel="time of a task, us")
        panel.grid(True, which="major", alpha=0.3)
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
