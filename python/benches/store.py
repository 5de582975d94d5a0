"""Objects beside common alternatives: get, put, proxies, and functions at the data.

    python python/benches/store.py --program target/release/farjump

The owner is `farjump serve --objects` in a process of its own, on the same machine. The baselines are files in /dev/shm by
ProxyStore's file connector (needs `proxystore`), a Redis server over a Unix socket (needs `redis-server` and `redis`),
`multiprocessing.shared_memory`, and plain memory. A baseline that is not installed is left out, and
named. Needs NumPy. The functions at the data need Numba.
"""

import contextlib
import importlib.util
import mmap
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import shared_memory
from time import perf_counter_ns

import farjump
import numpy as np

import common

SMALL, LARGE = 64, 1 << 20
# Bytes of the vectors that `nearest` searches.
VECTORS = 100 << 20
WIDTH = 128
# A wire for which the time of a fetch is computed: 12.5 GB/s, and 5 us there and back.
BYTES_PER_NS, ROUND_TRIP_NS = 12.5, 10_000


def main() -> int:
    options = common.parser(__doc__.splitlines()[0])
    options.add_argument("--calls", type=common.positive, default=200, metavar="N", help="operations in a round [default: 200]")
    options.add_argument("--vectors", type=common.positive, default=VECTORS, metavar="BYTES", help="bytes of the vectors")
    options.add_argument("--only", choices=("bytes", "proxies", "places"), help="measure a part alone")
    options = options.parse_args()
    status = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="farjump-bench-", dir="/dev/shm"))
        address, _ = stack.enter_context(common.target(options, "--objects", str(1 << 30)))
        world = World(options, stack, address, folder)
        for part, plan in (("bytes", bytes_plan), ("proxies", proxies_plan), ("places", places_plan)):
            if options.only in (None, part):
                planned = plan(world)
                if planned is not None:
                    cases, bounds = planned
                    common.measure(cases, options.rounds)
                    status |= common.report(options, cases, bounds)
                    print()
    for missing in world.missing:
        print(f"left out: {missing}")
    return status


class World:
    """The measured stores and servers, as far as they are installed."""

    def __init__(self, options, stack, address, folder):
        self.options, self.stack, self.address, self.folder = options, stack, address, folder
        self.missing: list[str] = []
        self.store = stack.enter_context(farjump.Store(address))
        self.link = stack.enter_context(farjump.Link(address))
        self.echo = stack.enter_context(common.built(options, "integration-tests/ifuncs/echo.c"))
        self.redis = self.started_redis()

    def has(self, package: str, what: str) -> bool:
        if importlib.util.find_spec(package) is not None:
            return True
        self.missing.append(f"{what}: there is no package {package}")
        return False

    def started_redis(self):
        """Starts a Redis server, and returns a client over a Unix socket; None if there is no server."""
        program = shutil.which("redis-server")
        if program is None or not self.has("redis", "Redis"):
            self.missing.append("Redis: there is no redis-server")
            return None
        import redis

        socket = f"{self.folder}/redis.sock"
        command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", self.folder]
        serving = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.stack.callback(lambda: (serving.terminate(), serving.wait()))
        client = redis.Redis(unix_socket_path=socket)
        for _ in range(500):
            with contextlib.suppress(redis.exceptions.ConnectionError):
                client.ping()
                break
            import time

            time.sleep(0.01)
        places = common.chosen_processors(self.options)
        if places:
            os.sched_setaffinity(serving.pid, places[1:])
        return client


def timed(count: int, operation: Callable[[], object]) -> float:
    """Returns the nanoseconds for one operation: the median of `count`."""
    times = []
    for _ in range(count):
        begun = perf_counter_ns()
        operation()
        times.append(perf_counter_ns() - begun)
    return statistics.median(times)


def touched(view) -> int:
    """Reads one byte of each line."""
    return int(np.frombuffer(view, "u1")[::64].sum())


def bytes_plan(world):
    calls, store = world.options.calls, world.store
    small, large = store.put(bytes(SMALL)), store.put(bytes(LARGE))
    data = os.urandom(LARGE)
    # Memory that was touched, as the object's is after the first read.
    own = mmap.mmap(-1, LARGE)
    own[:] = data

    def case(name, operation):
        return common.Case(name, lambda: timed(calls, operation))

    empty = case("empty call", lambda: world.link.call(world.echo, b""))
    get_small = case("get 64 B", lambda: store.get(small))
    get_large = case("get 1 MiB", lambda: store.get(large))
    read = case("get 1 MiB, read", lambda: touched(store.get(large)))
    mapped = case("read 1 MiB of own memory", lambda: touched(own))
    cases = [empty, get_small, get_large, read, mapped]
    bounds = [
        common.Bound(get_small, empty, plus=1000), common.Bound(get_large, empty, plus=2000), common.Bound(read, mapped, times=1.3),
    ]
    # Memory in similar use: one MiB of this process, again and again.
    into = memoryview(bytearray(LARGE))

    def copy():
        into[:] = data

    def put():
        store.evict(store.put(data))

    def put_alone():
        times = []
        for _ in range(calls):
            begun = perf_counter_ns()
            handle = store.put(data)
            times.append(perf_counter_ns() - begun)
            store.evict(handle)
        return statistics.median(times)

    def first_puts():
        """Puts objects in memory that was never used: evicts none before all are put."""
        handles, times = [], []
        for _ in range(16):
            begun = perf_counter_ns()
            handles.append(store.put(data))
            times.append(perf_counter_ns() - begun)
        kept.extend(handles)
        return statistics.median(times)

    kept = []

    def fresh():
        times = []
        for _ in range(16):
            memory = memfd(LARGE)
            begun = perf_counter_ns()
            memory[:] = data
            times.append(perf_counter_ns() - begun)
            memory.close()
        return statistics.median(times)

    copied, copied_fresh = case("copy 1 MiB", copy), common.Case("copy 1 MiB into fresh pages", fresh)
    put_used, put_first = common.Case("put 1 MiB", put_alone), common.Case("put 1 MiB, first", first_puts)
    cases += [copied, put_used, copied_fresh, put_first]
    bounds += [common.Bound(put_used, copied, times=1.2), common.Bound(put_first, copied_fresh, times=1.5)]
    if world.redis is not None:
        world.redis.set("small", bytes(SMALL))
        world.redis.set("large", data)
        of_redis = [case(f"Redis: get {text}", lambda key=key: world.redis.get(key)) for text, key in (("64 B", "small"), ("1 MiB", "large"))]
        cases += of_redis
        bounds += [
            common.Bound(get_small, of_redis[0], times=1 / 30), common.Bound(get_large, of_redis[1], times=1 / 300),
            common.Bound(read, of_redis[1], times=1 / 40),
        ]
    if world.has("proxystore", "ProxyStore's file connector"):
        from proxystore.connectors.file import FileConnector

        files = world.stack.enter_context(FileConnector(f"{world.folder}/files"))
        from farjump.proxystore import FarjumpConnector

        own_connector = world.stack.enter_context(FarjumpConnector(world.address))
        for text, length, plus in (("64 B", SMALL, 1000), ("1 MiB", LARGE, 2000)):
            key, own_key = files.put(bytes(length)), own_connector.put(bytes(length))
            got = case(f"FarjumpConnector: get {text}", lambda own_key=own_key: own_connector.get(own_key))
            cases += [got, case(f"file connector: get {text}", lambda key=key: files.get(key))]
            bounds.append(common.Bound(got, empty, plus=plus))
        if world.has("proxystore_ex", "ZMQ DIM connector"):
            from proxystore_ex.connectors.dim.zmq import ZeroMQConnector

            dim = world.stack.enter_context(ZeroMQConnector(port=5555, address="127.0.0.1"))
            for text, length in (("64 B", SMALL), ("1 MiB", LARGE)):
                key = dim.put(bytes(length))
                cases.append(case(f"ZMQ DIM connector: get {text}", lambda key=key: dim.get(key)))
    shared = shared_memory.SharedMemory(create=True, size=LARGE)
    world.stack.callback(shared.unlink)

    def attach():
        other = shared_memory.SharedMemory(shared.name)
        bytes(other.buf[:1])
        other.close()

    cases.append(case("shared_memory: attach 1 MiB", attach))
    return cases, bounds


def memfd(length: int) -> mmap.mmap:
    descriptor = os.memfd_create("fresh")
    os.ftruncate(descriptor, length)
    memory = mmap.mmap(descriptor, length)
    os.close(descriptor)
    return memory


def proxies_plan(world):
    if not world.has("proxystore", "proxies"):
        return None
    from proxystore.connectors.file import FileConnector
    from proxystore.store import Store

    from farjump import proxystore as own

    array = np.random.default_rng(1).random(LARGE // 8)
    calls = max(world.options.calls // 10, 5)

    def journey(store):
        def once():
            proxy = store.proxy(array)
            came = pickle.loads(pickle.dumps(proxy))
            assert came[1] == array[1]
            store.evict(came.__factory__.key if hasattr(came, "__factory__") else own_key(came))

        return lambda: timed(calls, once)

    def own_key(proxy):
        from proxystore.proxy import get_factory

        return get_factory(proxy).key

    ours = world.stack.enter_context(own.FarjumpStore("ours", own.FarjumpConnector(world.address), register=True))
    plain = world.stack.enter_context(Store("files", FileConnector(f"{world.folder}/plain"), cache_size=0, register=True))
    same = Store("same", FileConnector(f"{world.folder}/same"), serializer=own.serialize, deserializer=own.deserialize, cache_size=0, register=True)
    world.stack.enter_context(same)
    mine = common.Case("proxy made, pickled, resolved", journey(ours))
    files = common.Case("the same by the file connector", journey(plain))
    alike = common.Case("the same by the file connector and our serializer", journey(same))
    return [mine, files, alike], [common.Bound(mine, files, times=1 / 10), common.Bound(mine, alike, times=1 / 2)]


def places_plan(world):
    if not world.has("numba", "functions at the data"):
        return None
    import numba  # noqa: F401

    rows = np.random.default_rng(2).random((world.options.vectors // (4 * WIDTH), WIDTH), dtype="f4")
    query = rows[len(rows) // 2].copy()

    @farjump.ifunc("f4[:, ::1], f4[::1] -> i8", fastmath=True, levels=("v3",))
    def nearest(rows, query):
        best, at = np.float32(np.inf), -1
        for i in range(rows.shape[0]):
            distance = np.float32(0)
            for j in range(rows.shape[1]):
                difference = rows[i, j] - query[j]
                distance += difference * difference
            if distance < best:
                best, at = distance, i
        return at

    expected = len(rows) // 2
    handle = farjump.put_array(world.store, rows)
    # Each runs once before, to be compiled.
    assert farjump.at(handle, nearest, query) == nearest(rows, query) == expected

    def there():
        assert farjump.at(handle, nearest, query) == expected

    def first_touched():
        """Gets the array by a client of its own, which has not mapped the memory yet."""
        with farjump.Store(world.address) as store:
            begun = perf_counter_ns()
            assert nearest(farjump.get_array(store, handle), query) == expected
            return perf_counter_ns() - begun

    at = common.Case("nearest at the owner", lambda: timed(3, there))
    compute = common.Case("nearest on own memory", lambda: timed(3, lambda: nearest(rows, query)))
    fetched = common.Case("our get, first touched, and nearest", lambda: statistics.median(first_touched() for _ in range(3)))
    cases, bounds = [at, compute, fetched], [common.Bound(at, fetched, times=1 / 1.3)]
    wire = world.options.vectors / BYTES_PER_NS + ROUND_TRIP_NS
    over_wire = common.Case("fetch over a wire (computed), and nearest", lambda: compute.figures[-1] + wire if compute.figures else wire)
    at_wire = common.Case("nearest at the owner over that wire (computed)", lambda: timed(3, there) + ROUND_TRIP_NS)
    arithmetic = common.Case("that arithmetic says", lambda: compute.figures[-1] + ROUND_TRIP_NS if compute.figures else 1.0)
    cases += [over_wire, at_wire, arithmetic]
    bounds.append(common.Bound(at_wire, arithmetic, times=1 / 0.9))
    if world.has("proxystore", "the file connector"):
        from proxystore.connectors.file import FileConnector
        from proxystore.store import Store

        store = world.stack.enter_context(Store("vectors", FileConnector(f"{world.folder}/vectors"), cache_size=0))
        key = store.put(rows)
        files = common.Case("file connector, resolved, and nearest", lambda: timed(1, lambda: nearest(store.get(key), query)))
        cases.append(files)
        bounds.append(common.Bound(at, files, times=1 / 4))
    if world.redis is not None:
        world.redis.set("vectors", rows.tobytes())

        def from_redis():
            found = np.frombuffer(world.redis.get("vectors"), "f4").reshape(rows.shape)
            assert nearest(found, query) == expected

        remote = common.Case("Redis, get, and nearest", lambda: timed(1, from_redis))
        cases.append(remote)
        bounds.append(common.Bound(at, remote, times=1 / 20))
    for length in (SMALL, 4096, 65_536, LARGE, 16 << 20):
        part = rows[: max(length // (4 * WIDTH), 1)] if length >= 4 * WIDTH else rows[:1, : length // 4].copy()
        few = np.ascontiguousarray(part[0])
        here_and_there(world, cases, bounds, farjump.put_array(world.store, part), nearest, few, part.nbytes)
    here_and_there(world, cases, bounds, handle, nearest, query, rows.nbytes)
    return cases, bounds


class Better:
    """The better of two cases, as a reference."""

    def __init__(self, *cases):
        self.cases, self.name = cases, "the better of " + " and ".join(case.name for case in cases)

    @property
    def figures(self):
        return [min(both) for both in zip(*(case.figures for case in self.cases), strict=True)]


def here_and_there(world, cases, bounds, handle, function, query, length):
    """Adds cases of one length: at either place, and at the chosen one."""
    count = 300 if length <= 1 << 20 else 12

    def case(place):
        return common.Case(f"{length} B, {place}", lambda: timed(count, lambda: farjump.at(handle, function, query, place=place)))

    here, there, auto = case("here"), case("owner"), case("auto")
    cases += [here, there, auto]
    bounds.append(common.Bound(auto, Better(here, there), times=1.1))


if __name__ == "__main__":
    sys.exit(main())
