"""Functions at the data of handles: in another process, and at the place that takes less time."""

import asyncio
import tempfile
import time
import unittest

import farjump
from support import WATCHDOG, WithTarget, few_descriptors, kept, library, python
from test_store import OWNER

try:
    import numpy as np

    from test_ifunc import nearest
    from test_ifunc_objects import scaled
except (ImportError, unittest.SkipTest) as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")


# Owners one after the other, in one process: each at the address of a line, until the next line.
OWNERS = """
import sys, threading, numpy, farjump
for address in iter(sys.stdin.readline, ""):
    with farjump.Target(address.strip(), objects="64M", export_library=["libm.so.6"]) as target:
        serving = threading.Thread(target=target.run)
        serving.start()
        with farjump.Store(target.address) as store:
            print(bytes(farjump.put_array(store, numpy.eye(4, dtype="f4"))).hex(), flush=True)
        sys.stdin.readline()
    serving.join()
    print("ended", flush=True)
"""


class Places(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="farjump-places-")
        self.addCleanup(self.folder.cleanup)
        self.store = self.own("owner")[1]

    def own(self, name):
        """Starts an owner in another process, and returns it and its store."""
        address = f"unix:{self.folder.name}/{name}"
        owner = python(OWNER, address, str(64 << 20))
        self.addCleanup(owner.communicate)
        self.addCleanup(owner.kill)
        self.assertEqual(owner.stdout.readline(), "ready\n")
        store = farjump.Store(address)
        self.addCleanup(store.close)
        return owner, store

    def put(self, array, store=None):
        return farjump.put_array(store or self.store, array)

    def test_a_function_runs_here_there_or_where_it_is_sooner(self):
        rows = np.random.default_rng(5).random((1000, 16), dtype="f4")
        handle = self.put(rows)
        for place in ("owner", "here", "auto", "auto", "auto"):
            self.assertEqual(farjump.at(handle, nearest, rows[77], place=place, timeout=WATCHDOG), 77)
        choice = farjump.choose(handle, nearest, rows[77])
        self.assertIn(choice.place, ("owner", "here"))
        self.assertGreaterEqual(min(choice.here, choice.owner), 0)
        for index in range(0, 1000, 7):
            self.assertEqual(farjump.at(handle, nearest, rows[index], place="auto", timeout=WATCHDOG), index)
        with self.assertRaisesRegex(ValueError, "place='there'"):
            farjump.at(handle, nearest, rows[0], place="there")

    def test_many_objects_of_several_owners_are_one_outcome(self):
        other = self.own("other")[1]
        rows = np.eye(8, dtype="f4")
        handles = [self.put(np.roll(rows, turn, axis=0), (self.store, other)[turn % 2]) for turn in range(8)]
        self.assertEqual(farjump.map(handles, nearest, rows[0]).wait(WATCHDOG), list(range(8)))

        async def call():
            return await farjump.map(handles, nearest, rows[0])

        self.assertEqual(asyncio.run(asyncio.wait_for(call(), WATCHDOG)), list(range(8)))
        self.store.evict(handles[0])
        outcomes = farjump.map(handles, nearest, rows[0], return_exceptions=True).wait(WATCHDOG)
        self.assertIsInstance(outcomes[0], farjump.Gone)
        self.assertEqual(outcomes[1:], list(range(1, 8)))

    def test_an_object_is_made_of_another_one(self):
        rows = np.eye(4, dtype="f4")
        made = farjump.derive(self.put(rows), scaled, 3.0, timeout=WATCHDOG)
        np.testing.assert_array_equal(farjump.get_array(self.store, made), rows * 3)
        self.assertEqual(farjump.at(made, nearest, rows[2] * 3, timeout=WATCHDOG), 2)
        with self.assertRaisesRegex(TypeError, "no output"):
            farjump.derive(made, nearest, rows[0])

    def test_what_names_no_object_is_refused(self):
        rows = np.eye(4, dtype="f4")
        with self.assertRaisesRegex(TypeError, "names no object"):
            farjump.at(rows, nearest, rows[0])
        with self.assertRaisesRegex(farjump.Gone, "evicted"):
            handle = self.put(rows)
            self.store.evict(handle)
            farjump.at(handle, nearest, rows[0], timeout=WATCHDOG)
        with self.assertRaisesRegex(TypeError, "runs at the owner only"):
            farjump.at(self.put(rows), library("echo"), b"", place="auto")

    def test_calls_at_a_killed_or_restarted_owner_raise_errors(self):
        owner, store = self.own("ends")
        rows = np.eye(4, dtype="f4")
        handle = self.put(rows, store)
        self.assertEqual(farjump.at(handle, nearest, rows[1], timeout=WATCHDOG), 1)
        owner.kill()
        owner.wait()
        with self.assertRaises(farjump.PeerGone):
            farjump.at(handle, nearest, rows[1], timeout=WATCHDOG)
        with self.assertRaises(farjump.ConnectError):
            farjump.at(handle, nearest, rows[1], timeout=WATCHDOG)
        self.own("ends")
        with self.assertRaisesRegex(farjump.Gone, "restarted"):
            farjump.at(handle, nearest, rows[1], timeout=WATCHDOG)

    def owners(self):
        """Returns two functions. The first makes an owner at an address and returns the handle of its array. The second ends
        it."""
        process = python(OWNERS)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)

        def say(line):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        def begin(name):
            return farjump.Handle(bytes.fromhex(say(f"unix:{self.folder.name}/{name}")))

        return begin, lambda: self.assertEqual(say("end"), "ended")

    def test_owners_that_ended_leave_neither_descriptors_nor_memory(self):
        begin, end = self.owners()
        row = np.eye(4, dtype="f4")[2]
        with few_descriptors():
            for place in ("owner", "here"):
                found = []
                for turn in range(100):
                    handle = begin(f"{place}{turn}")
                    self.assertEqual(farjump.at(handle, nearest, row, place=place, timeout=WATCHDOG), 2)
                    end()
                    found.append(kept())
                # The next use detects the end of the last one.
                self.assertLessEqual(max(descriptors for descriptors, _ in found), found[1][0] + 40, place)
                self.assertLessEqual(max(mapped for _, mapped in found), found[1][1], place)

    def test_an_ended_owner_is_let_go_at_a_use_of_another(self):
        rows = np.eye(4, dtype="f4")
        living = self.put(rows)
        for place in ("owner", "here"):
            self.assertEqual(farjump.at(living, nearest, rows[1], place=place, timeout=WATCHDOG), 1)
        begin, end = self.owners()
        before = kept()
        for turn in range(5):
            handle = begin(f"other{turn}")
            self.assertEqual(farjump.at(handle, nearest, rows[2], timeout=WATCHDOG), 2)
            end()
        until = time.monotonic() + WATCHDOG / 2
        # Some may be open for other reasons: each of these owners has 14.
        while (now := kept())[0] > before[0] + 10 or now[1] > before[1]:
            self.assertEqual(farjump.at(living, nearest, rows[1], timeout=WATCHDOG), 1)
            self.assertLess(time.monotonic(), until, f"{now}, and before {before}")

    def test_the_next_owner_at_an_address_is_another(self):
        begin, end = self.owners()
        rows, last = np.eye(4, dtype="f4"), None
        for _ in range(3):
            handle = begin("same")
            for place in ("owner", "here", "auto"):
                self.assertEqual(farjump.at(handle, nearest, rows[3], place=place, timeout=WATCHDOG), 3)
            self.assertEqual(farjump.map([handle], nearest, rows[1]).wait(WATCHDOG), [1])
            if last is not None:
                with self.assertRaisesRegex(farjump.Gone, "restarted"):
                    farjump.at(last, nearest, rows[3], timeout=WATCHDOG)
            last = handle
            end()

    def test_a_forked_child_reaches_owners_by_itself(self):
        rows = np.eye(4, dtype="f4")
        handle = self.put(rows)
        child = python(
            "import os, sys, farjump\n"
            "import numpy as np\n"
            "from test_ifunc import nearest\n"
            "rows = np.eye(4, dtype='f4')\n"
            "handle = farjump.Handle(bytes.fromhex(sys.argv[1]))\n"
            "assert farjump.at(handle, nearest, rows[3], timeout=15) == 3\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    os._exit(0 if farjump.at(handle, nearest, rows[2], timeout=15) == 2 else 1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
            "assert farjump.at(handle, nearest, rows[1], timeout=15) == 1\n"
            "print('ok')\n",
            bytes(handle).hex(),
        )
        self.assertEqual(child.communicate(timeout=2 * WATCHDOG)[0], "ok\n")


class InTheFile(WithTarget):
    """An owner with memory for three of nine objects."""

    SERVES = ("--objects", "1M", "--objects-spill-folder", tempfile.gettempdir(), "--objects-spill-bytes", "64M")

    def test_a_function_starts_when_its_object_has_come_from_the_file(self):
        store = farjump.Store(self.address)
        self.addCleanup(store.close)
        self.assertTrue(store.spills)
        rows = np.eye(256, dtype="f4")
        handles = [farjump.put_array(store, np.roll(rows, turn, axis=0)) for turn in range(9)]
        for turn, handle in enumerate(handles):
            self.assertEqual(farjump.at(handle, nearest, rows[0], timeout=WATCHDOG), turn)
        self.assertEqual(farjump.map(handles, nearest, rows[0]).wait(WATCHDOG), list(range(9)))
        # A call without `farjump.at` holds nothing, and runs again when its object has come.
        link = self.link()
        for turn, handle in enumerate(handles):
            self.assertEqual(link.call(nearest, handle, rows[0], timeout=WATCHDOG), turn)

    def test_an_object_is_made_where_others_read_its_file(self):
        store = farjump.Store(self.address)
        self.addCleanup(store.close)
        rows = np.eye(256, dtype="f4")
        handles = [farjump.put_array(store, np.roll(rows, turn, axis=0)) for turn in range(9)]
        for turn, handle in enumerate(handles):
            made = farjump.derive(handle, scaled, 2.0, timeout=WATCHDOG)
            np.testing.assert_array_equal(farjump.get_array(store, made), 2 * np.roll(rows, turn, axis=0))


if __name__ == "__main__":
    unittest.main()
