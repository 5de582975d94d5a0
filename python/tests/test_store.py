"""Objects and their handles: put, read, evicted, reserved; by the owner's process and by others."""

import array
import copy
import gc
import os
import pickle
import signal
import tempfile
import threading
import time
import unittest

import farjump
from support import WATCHDOG, python

OWNER = (
    "import sys, farjump\n"
    "target = farjump.Target(sys.argv[1], objects=int(sys.argv[2]))\n"
    "print('ready', flush=True)\n"
    "target.run()\n"
)

# A reader that ends in order. Its child continues with its view.
FORKING = (
    "import os, sys, time, farjump\n"
    "store = farjump.Store(sys.argv[1])\n"
    "view = store.get(farjump.Handle(bytes.fromhex(sys.stdin.buffer.raw.read(4096).decode())))\n"
    "parent = os.getpid()\n"
    "if os.fork() == 0:\n"
    "    signal.alarm(20)\n"
    "    while os.getppid() == parent:\n"
    "        time.sleep(0.001)\n"
    "    os.write(1, b'alone\\n')\n"
    "    while os.read(0, 100):\n"
    "        os.write(1, bytes(view[:8]) + b'\\n')\n"
    "    os._exit(0)\n"
)


class Stores(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="farjump-store-")
        self.addCleanup(self.folder.cleanup)
        self.address = f"unix:{self.folder.name}/owner"

    def own(self, capacity=64 << 20):
        """Starts an owner in another process."""
        owner = python(OWNER, self.address, str(capacity))
        self.addCleanup(owner.communicate)
        self.addCleanup(owner.kill)
        self.assertEqual(owner.stdout.readline(), "ready\n")
        return owner

    def store(self, **options):
        store = farjump.Store(self.address, **options)
        self.addCleanup(store.close)
        return store

    def test_what_is_put_is_read_without_a_copy_and_by_others(self):
        self.own()
        store = self.store()
        self.assertEqual(store.unmapped, "")
        for data in [b"", b"x", os.urandom(5000), bytearray(os.urandom(3 << 20)), array.array("d", [1, 2, 3])]:
            handle = store.put(data, type_name="test")
            self.assertEqual((handle.length, handle.type_name), (memoryview(data).nbytes, "test"))
            view = store.get(handle)
            self.assertEqual(bytes(view), bytes(data))
            self.assertTrue(view.readonly)
            with self.assertRaises(TypeError):
                view[:0] = b""
            again = pickle.loads(pickle.dumps(handle))
            self.assertEqual((again, hash(again), bytes(again)), (handle, hash(handle), bytes(handle)))
            self.assertEqual(copy.deepcopy(handle), handle)
            other = self.store(mapped=False)
            self.assertIn("told not to", other.unmapped)
            self.assertEqual(bytes(other.get(again)), bytes(data))
        parts = store.put_parts([b"one", bytearray(b" two"), memoryview(b" three")])
        self.assertEqual(bytes(store.get(parts)), b"one two three")

    def test_views_outlive_eviction_store_and_owner(self):
        owner = self.own()
        store = self.store()
        data = os.urandom(1 << 20)
        handle = store.put(data)
        view = store.get(handle)
        part = view[1000:2000]
        del view
        gc.collect()
        self.assertTrue(store.evict(handle))
        self.assertFalse(store.evict(handle))
        self.assertFalse(store.exists(handle))
        with self.assertRaisesRegex(farjump.Gone, "was evicted"):
            store.get(handle)
        store.close()
        owner.kill()
        owner.wait()
        self.assertEqual(part, data[1000:2000])
        with self.assertRaises(farjump.Closed):
            store.put(b"x")

    def test_memory_comes_back_from_views_that_are_dropped(self):
        self.own(4 << 20)
        store = self.store()
        for _ in range(50):
            handle = store.put(bytes(1 << 20))
            self.assertEqual(len(store.get(handle)), 1 << 20)
            self.assertTrue(store.evict(handle))
        held = [store.get(store.put(bytes(1 << 20))) for _ in range(3)]
        with self.assertRaisesRegex(farjump.StoreFull, "no memory for 2097152 bytes") as raised:
            store.put(bytes(2 << 20))
        self.assertIsInstance(raised.exception, MemoryError)
        del held

    def test_a_reader_that_is_killed_holds_nothing(self):
        self.own(4 << 20)
        store = self.store()
        handle = store.put(bytes(3 << 20))
        child = python(
            "import sys, time, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "view = store.get(farjump.Handle(bytes.fromhex(sys.argv[2])))\n"
            "print('reads', flush=True)\n"
            "time.sleep(60)\n",
            self.address,
            bytes(handle).hex(),
        )
        self.addCleanup(child.communicate)
        self.assertEqual(child.stdout.readline(), "reads\n")
        store.evict(handle)
        with self.assertRaises(farjump.StoreFull):
            store.put(bytes(3 << 20))
        child.kill()
        child.wait()
        until = time.monotonic() + WATCHDOG
        while True:
            try:
                store.put(bytes(3 << 20))
                break
            except farjump.StoreFull:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)

    def test_a_forked_child_keeps_a_view_of_a_reader_that_ended(self):
        # A larger object is released at once when its view is dropped, and a smaller one later.
        for length, capacity in ((64 << 10, 1 << 20), (512 << 10, 1 << 20)):
            with self.subTest(length=length):
                address = f"{self.address}-{length}"
                owner = python(OWNER, address, str(capacity))
                self.addCleanup(owner.communicate)
                self.addCleanup(owner.kill)
                self.assertEqual(owner.stdout.readline(), "ready\n")
                store = farjump.Store(address)
                self.addCleanup(store.close)
                handle = store.put(b"old text" * (length // 8))
                reader = python(FORKING, address)
                # Its input is closed below. After that `communicate` fails in CPython 3.11.
                self.addCleanup(reader.stdout.close)
                self.addCleanup(reader.wait)
                self.addCleanup(reader.kill)
                reader.stdin.write(bytes(handle).hex() + "\n")
                reader.stdin.flush()
                self.assertEqual(reader.stdout.readline(), "alone\n")
                reader.wait(WATCHDOG)
                store.evict(handle)
                with self.assertRaisesRegex(farjump.StoreFull, rf"kept for ended links of .*\(pid {reader.pid}\)"):
                    while True:
                        store.put(b"new text" * (length // 8))
                reader.stdin.write("look\n")
                reader.stdin.flush()
                self.assertEqual(reader.stdout.readline(), "old text\n")
                reader.stdin.close()
                self.assertEqual(reader.stdout.readline(), "", "the child has ended")
                until = time.monotonic() + WATCHDOG
                while True:
                    try:
                        store.put(bytes(length))
                        break
                    except farjump.StoreFull:
                        self.assertLess(time.monotonic(), until)
                        time.sleep(0.01)

    def test_a_restarted_owner_raises_gone_for_earlier_handles(self):
        owner = self.own()
        store = self.store()
        handle = store.put(b"of before")
        owner.kill()
        owner.wait()
        with self.assertRaises(farjump.PeerGone):
            store.get(handle)
        self.own()
        with self.assertRaisesRegex(farjump.Gone, "restarted"):
            self.store().get(handle)

    def test_reserved_handles_are_waited_for(self):
        self.own()
        store = self.store()
        handle = store.reserve()
        self.assertTrue(store.exists(handle))
        with self.assertRaises(farjump.Unset):
            store.get(handle)
        with self.assertRaises(farjump.TimedOut):
            store.wait(handle, timeout=0.03)
        setter = threading.Timer(0.05, lambda: store.set(handle, b"set"))
        setter.start()
        self.assertEqual(bytes(store.wait(handle, timeout=WATCHDOG)), b"set")
        setter.join()
        store.set(handle, b"set again")
        self.assertEqual(bytes(store.get(handle)), b"set again")
        with self.assertRaises(farjump.HandleError):
            store.set(store.put(b"plain"), b"other")
        store.lease(handle, 0.001)
        until = time.monotonic() + WATCHDOG
        while store.exists(handle) and time.monotonic() < until:
            time.sleep(0.001)
        with self.assertRaises(farjump.Gone):
            store.wait(handle, timeout=1)

    def test_a_wait_is_interrupted(self):
        self.own()
        child = python(
            "import sys, time, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "handle = store.reserve()\n"
            "print('waits', flush=True)\n"
            "try:\n"
            "    store.wait(handle)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n",
            self.address,
        )
        self.assertEqual(child.stdout.readline(), "waits\n")
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=WATCHDOG)[0], "interrupted\n")

    def test_a_forked_child_raises_forked_and_still_reads_its_views(self):
        self.own()
        child = python(
            "import os, sys, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "handle = store.put(bytes(300000))\n"
            "view = store.get(handle)\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    assert view == bytes(300000)\n"
            "    del view\n"
            "    try:\n"
            "        store.get(handle)\n"
            "    except farjump.Forked as error:\n"
            "        own = farjump.Store(sys.argv[1])\n"
            "        ok = bytes(own.get(handle)) == bytes(300000)\n"
            "        os._exit(0 if ok and 'make another' in str(error) else 1)\n"
            "    os._exit(2)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
            "assert view == bytes(300000)\n"
            "print('ok')\n",
            self.address,
        )
        self.assertEqual(child.communicate(timeout=WATCHDOG)[0], "ok\n")

    def test_handles_that_are_none_are_refused_in_words(self):
        self.own()
        store = self.store()
        handle = bytes(store.put(b"contents"))
        for wrong, why in [
            (b"", "cut off"),
            (handle[:-1], "cut off"),
            (handle + b"x", "follow the end"),
            (b"XYZ" + handle[3:], "FJH"),
            (handle[:3] + b"\x09" + handle[4:], "version 9"),
        ]:
            with self.assertRaisesRegex(farjump.HandleError, why):
                farjump.Handle(wrong)
        forged = bytearray(handle)
        forged[28] ^= 1
        with self.assertRaisesRegex(farjump.HandleError, "key"):
            store.get(farjump.Handle(forged))
        with self.assertRaises(TypeError):
            store.get(handle)
        with self.assertRaises(ValueError):
            store.get(farjump.Handle(handle), timeout=-1)
        with self.assertRaises(farjump.HandleError):
            store.put(b"", type_name="x" * 256)
        self.assertNotEqual(farjump.Handle(handle), "handle")

    def test_threads_share_a_store(self):
        self.own()
        store = self.store()
        failed = []

        def work():
            try:
                for size in range(0, 200_000, 2000):
                    data = os.urandom(size)
                    handle = store.put(data)
                    if store.get(handle) != data or not store.evict(handle):
                        failed.append(size)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WATCHDOG)
        self.assertEqual(failed, [])

    def test_a_target_without_a_store_says_so(self):
        with farjump.Target(self.address) as target:
            thread = threading.Thread(target=target.run)
            thread.start()
            with self.assertRaisesRegex(farjump.Refused, "no store of objects"):
                farjump.Store(self.address)
            target.stop()
            thread.join()


if __name__ == "__main__":
    unittest.main()
