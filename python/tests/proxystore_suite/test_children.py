"""The connector in other processes: forked, spawned, from a fork server, and those that get proxies."""

import multiprocessing
import os
import pickle
import resource
import time
from concurrent.futures import ProcessPoolExecutor

import numpy

import farjump
from children import WATCHDOG, WithFolder
from farjump.proxystore import FarjumpConnector, FarjumpStore
from proxystore.proxy import ProxyResolveError, is_resolved
from proxystore.store import get_store
from proxystore.store.exceptions import ProxyResolveMissingKeyError


def by_config(config, key):
    """Returns, in a child, the bytes that a connector of the same configuration reads, and the key of bytes that it puts."""
    with FarjumpConnector.from_config(config) as connector:
        return bytes(connector.get(key)), connector.put(b"of the child")


def total(proxy):
    """Returns, in a child, whether a proxy of an array came resolved, and the sum of the array."""
    return bool(is_resolved(proxy)), float(proxy.sum())


def made(config):
    """Returns, from a child that ends, a pickled proxy."""
    store = FarjumpStore(connector=FarjumpConnector.from_config(config))
    return pickle.dumps(store.proxy({"numbers": numpy.arange(1000)}))


def sets(future):
    """Sets, in a child, the result of a future."""
    time.sleep(0.1)
    future.set_result(numpy.arange(3))


class Children(WithFolder):
    def in_child(self, method, function, *arguments):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(function, *arguments).result(WATCHDOG)

    def each(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                yield method

    def test_a_child_has_a_connector_of_the_same_configuration(self):
        connector = self.connector()
        key = connector.put(b"of the parent")
        for method in self.each():
            read, theirs = self.in_child(method, by_config, connector.config(), key)
            self.assertEqual(read, b"of the parent")
            self.assertEqual(connector.get(theirs), b"of the child")

    def test_a_child_resolves_proxies(self):
        store = FarjumpStore(connector=self.connector())
        for method in self.each():
            proxy = store.proxy(numpy.arange(100.0))
            self.assertEqual(self.in_child(method, total, proxy), (False, 4950.0))
            self.assertFalse(is_resolved(proxy))

    def test_a_proxy_outlives_the_child_that_made_it(self):
        connector = self.connector()
        for method in self.each():
            proxy = pickle.loads(self.in_child(method, made, connector.config()))
            self.assertEqual(proxy["numbers"][-1], 999)

    def test_a_future_is_set_in_a_child(self):
        store = FarjumpStore(connector=self.connector())
        for method in self.each():
            future = store.future(polling_timeout=WATCHDOG)
            proxy = future.proxy()
            self.assertFalse(future.done())
            self.in_child(method, sets, future)
            self.assertEqual(list(proxy), [0, 1, 2])
            self.assertTrue(future.done())


# Owners one after the other, in one process: each at the address of a line, until the next line.
OWNERS = """
import threading, numpy
for line in sys.stdin:
    with farjump.Target(line.strip(), objects="64M") as target:
        serving = threading.Thread(target=target.run)
        serving.start()
        store = FarjumpStore("of an owner", FarjumpConnector(target.address))
        print(pickle.dumps(store.proxy(numpy.ones(10))).hex(), flush=True)
        store.close()
        sys.stdin.readline()
    serving.join()
    print("ended", flush=True)
"""


def kept():
    """Returns the number of descriptors of this process, and of its mappings of owners' memory."""
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("memfd:farjump-objects" in line for line in maps)


class Owners(WithFolder):
    """A process that resolves proxies of owners that end."""

    def setUp(self):
        super().setUp()
        self.process = self.child(OWNERS)

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()

    def begin(self, name):
        return bytes.fromhex(self.say(f"unix:{self.folder}/{name}"))

    def end(self):
        self.assertEqual(self.say("end"), "ended")

    def test_proxies_of_the_next_owner_at_an_address_are_resolved(self):
        last = None
        for _ in range(4):
            message = self.begin("store")
            for _ in range(2):
                self.assertEqual(pickle.loads(message).sum(), 10)
            made = get_store(pickle.loads(message))
            self.assertFalse(made.connector.gone)
            if last is not None:
                with self.assertRaises(ProxyResolveError) as raised:
                    pickle.loads(last).sum()
                self.assertIsInstance(raised.exception.__cause__, ProxyResolveMissingKeyError)
                self.assertEqual(pickle.loads(message).sum(), 10, "as before")
            last = message
            self.end()
        made.close()

    def test_proxies_of_the_next_owner_process_at_an_address_are_resolved(self):
        for _ in range(3):
            child = self.child(
                "import numpy\n"
                "connector = FarjumpConnector(address)\n"
                "print(pickle.dumps(FarjumpStore('p', connector).proxy(numpy.ones(10))).hex(), flush=True)\n"
                "sys.stdin.read()\n"
                "connector.close(clear=True)\n"
            )
            message = bytes.fromhex(child.stdout.readline().decode())
            self.assertEqual(pickle.loads(message).sum(), 10)
            self.ended(child)

    def test_owners_that_ended_leave_neither_descriptors_nor_memory(self):
        limits, found = resource.getrlimit(resource.RLIMIT_NOFILE), []
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for turn in range(100):
            message = self.begin(str(turn))
            self.assertEqual(pickle.loads(message).sum(), 10)
            self.end()
            found.append(kept())
        # The next use detects the end of the last one.
        self.assertLessEqual(max(descriptors for descriptors, _ in found), found[1][0] + 40)
        self.assertLessEqual(max(mappings for _, mappings in found), found[1][1])


class Forks(WithFolder):
    def test_a_forked_child_uses_connectors_of_its_parent(self):
        child = self.child(
            "first = FarjumpConnector(address)\n"
            "second = FarjumpConnector(address)\n"
            "store = FarjumpStore(connector=first, register=True)\n"
            "key, proxy, view = first.put(b'parent'), store.proxy('text'), first.get(first.put(b'view'))\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    signal.alarm(15)\n"
            "    assert bytes(view) == b'view'\n"
            "    assert first.get(key) == second.get(key) == b'parent'\n"
            "    assert proxy == 'text'\n"
            "    second.close()\n"
            "    second.close()\n"
            "    own = first.put(b'child')\n"
            "    assert store.get(store.put([1])) == [1]\n"
            "    del view\n"
            "    os._exit(0 if first.get(own) == b'child' else 1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
            "assert first.get(key) == second.get(key) == b'parent'\n"
            "assert proxy == 'text' and bytes(view) == b'view'\n"
            "print('good')\n"
        )
        self.assertEqual(self.ended(child), b"good\n")

    def test_a_forked_child_keeps_no_owner_by_what_is_its_parents(self):
        connector = self.connector()
        owner = self.owner()
        pid = os.fork()
        if pid == 0:
            time.sleep(WATCHDOG)
            os._exit(0)
        try:
            connector.close()
            self.gone(owner)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)

    def test_what_was_closed_before_the_fork_stays_so(self):
        connector = self.connector()
        connector.close()
        pid = os.fork()
        if pid == 0:
            try:
                connector.put(b"x")
            except farjump.Closed:
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


class Proxies(WithFolder):
    def test_a_proxy_is_resolved_in_a_process_without_a_connector(self):
        store = FarjumpStore(connector=self.connector())
        proxy = store.proxy(numpy.arange(10))
        child = self.child("print(pickle.load(sys.stdin.buffer).sum())\n")
        self.assertEqual(self.ended(child, pickle.dumps(proxy)), b"45\n")

    def test_no_owner_is_started_for_what_is_lost(self):
        connector = FarjumpConnector(self.address)
        message = pickle.dumps(FarjumpStore(connector=connector).proxy([1]))
        connector.close(clear=True)
        child = self.child(
            "from proxystore.proxy import ProxyResolveError\n"
            "try:\n"
            "    print(len(pickle.load(sys.stdin.buffer)))\n"
            "except ProxyResolveError as error:\n"
            "    print(type(error.__cause__).__name__, error.__cause__)\n"
        )
        said = self.ended(child, message).decode()
        self.assertRegex(said, "^ConnectError no process listens .*: the owner .* has ended")

    def test_what_is_resolved_keeps_the_owner(self):
        connector = self.connector()
        store = FarjumpStore(connector=connector)
        message = pickle.dumps(store.proxy(numpy.arange(5.0)))
        child = self.child(
            "import numpy\n"
            "array = numpy.asarray(pickle.load(sys.stdin.buffer))\n"
            "print('ready', flush=True)\n"
            "os.kill(os.getpid(), signal.SIGSTOP)\n"
            "print(array.sum())\n"
        )
        child.stdin.write(message)
        child.stdin.close()
        self.assertEqual(child.stdout.readline(), b"ready\n")
        owner = self.owner()
        connector.close()
        time.sleep(0.1)
        self.assertEqual(self.owner(), owner)
        while open(f"/proc/{child.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.01)
        child.send_signal(18)
        self.assertEqual(child.stdout.read(), b"10.0\n")
        self.assertEqual(child.wait(WATCHDOG), 0)
