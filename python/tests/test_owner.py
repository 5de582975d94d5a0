"""The owner process by itself, and the bytes of objects, without ProxyStore."""

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import farjump
from farjump import _serialize
from support import WATCHDOG

COMMAND = [sys.executable, "-P", "-m", "farjump.owner"]


class Owner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="farjump-owner-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.address = f"unix:{self.folder}/store"

    def start(self, *arguments):
        owner = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(owner.stdout.close)
        self.addCleanup(owner.wait)
        self.addCleanup(owner.kill)
        return owner

    def started(self, *arguments):
        owner = self.start(self.address, *arguments)
        self.assertEqual(owner.stdout.readline(), f"farjump.owner: serves at {self.address}\n")
        return owner

    def test_the_default_is_half_of_the_processs_memory(self):
        from farjump import owner

        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        usable = farjump._native.usable_memory()
        self.assertTrue(0 < usable <= machine)
        self.assertEqual(owner._parser().parse_args([self.address]).memory, usable // 2)
        # A limit of the process counts like one of its control group.
        limited = (
            "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); from farjump import owner;"
            "print(owner._parser().parse_args(sys.argv[1:]).memory <= 2 << 30)"
        )
        said = subprocess.run(
            [sys.executable, "-P", "-c", limited, self.address], check=True, capture_output=True, text=True, timeout=WATCHDOG
        )
        self.assertEqual(said.stdout, "True\n")

    def test_it_serves_until_a_signal_and_leaves_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            owner = self.started("--memory", str(1 << 20))
            store = farjump.Store(self.address)
            handle = store.put(b"kept")
            self.assertEqual(store.get(handle), b"kept")
            store.close()
            self.assertIsNone(owner.poll(), "one that a user started outlives its users")
            owner.send_signal(number)
            self.assertEqual(owner.wait(WATCHDOG), 0, owner.stdout.read())
            self.assertEqual(os.listdir(self.folder), [])

    def test_it_takes_the_place_of_one_that_was_killed(self):
        owner = self.started()
        handle = farjump.Store(self.address).put(b"lost")
        owner.kill()
        owner.wait()
        self.assertIn("store.owner", os.listdir(self.folder))
        self.started()
        with self.assertRaises(farjump.Gone):
            farjump.Store(self.address).get(handle)

    def test_a_second_one_at_an_address_is_refused(self):
        self.started()
        second = self.start(self.address)
        self.assertEqual(second.wait(WATCHDOG), 1)
        self.assertIn("store", second.stdout.read())
        farjump.Store(self.address).close()

    def test_bad_arguments_end_the_owner_with_a_message(self):
        for arguments, part in (
            (["--memory", "much", self.address], "--memory"),
            ([f"unix:{self.folder}/none/store"], "none"),
            ([f"unix:{self.folder}/{'long' * 40}"], "long"),
            (["--export-library", "libno-such.so", self.address], "libno-such.so"),
            (["--export", "libm.so.6", self.address], "--export is called --export-library now"),
        ):
            owner = self.start(*arguments)
            self.assertIn(owner.wait(WATCHDOG), (1, 2))
            said = owner.stdout.read()
            self.assertIn(part, said)
            self.assertNotIn("Traceback", said)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_owner_greets_each_connection_and_ignores_nonsense(self):
        owner = self.started()
        for said in (b"", b"nonsense\n", b"clear\nmore"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(WATCHDOG)
                connection.connect(f"{self.folder}/store.owner")
                self.assertEqual(connection.recv(64), b"farjump-owner 1\n")
                connection.sendall(said)
        farjump.Store(self.address).close()
        self.assertIsNone(owner.poll())


class Bytes(unittest.TestCase):
    def test_objects_come_back(self):
        for obj in (
            b"",
            b"bytes",
            bytearray(b"array"),
            memoryview(b"view"),
            memoryview(b"12345678").cast("d"),
            "text",
            {"a": [1, 2.5, None]},
            io.UnsupportedOperation("an error"),
        ):
            back = _serialize.deserialize(_serialize.serialize(obj))
            self.assertIs(type(back), type(obj))
            self.assertEqual(back if not isinstance(obj, Exception) else back.args, getattr(obj, "args", obj))

    def test_a_view_is_a_part_of_what_was_given(self):
        kept = memoryview(_serialize.serialize(memoryview(bytes(1000))))
        self.assertIs(_serialize.deserialize(kept).obj, kept.obj)

    def test_cut_and_foreign_bytes_are_refused(self):
        for data in (b"", b"FJ", b"05\n\x80", b"FJB1", b"FJP1", b"FJP1" + bytes(4) + b"\xff" * 8):
            with self.assertRaises(ValueError, msg=data):
                _serialize.deserialize(data)
        with self.assertRaisesRegex(ValueError, "kind"):
            _serialize.deserialize(b"FJB1q" + bytes(10))
        with self.assertRaises(TypeError):
            _serialize.serialize(memoryview(bytes(8)).cast("B", (2, 4)))

    def test_missing_packages_are_named(self):
        without = mock.patch.dict(sys.modules, {"numpy": None})
        with without, self.assertRaisesRegex(ModuleNotFoundError, "pip install numpy"):
            _serialize.deserialize(b"FJA1" + bytes(60))
        with self.assertRaisesRegex(ModuleNotFoundError, "pip install proxystore"):
            import farjump.proxystore  # noqa: F401


if __name__ == "__main__":
    unittest.main()
