"""Targets in Python, signals, forks, and the end of the interpreter."""

import asyncio
import os
import signal
import threading
import time
import unittest

import farjump
from support import WATCHDOG, WithTarget, library, milliseconds, python


class Targets(WithTarget):
    def test_a_target_serves_in_a_thread_of_the_same_process(self):
        with farjump.Target(f"unix:{self.folder.name}/own") as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(target.address) as link:
                self.assertEqual(link.call(library("echo"), b"here", timeout=WATCHDOG), b"here")
                self.assertEqual(link.peer.pid, os.getpid())
                with self.assertRaisesRegex(farjump.ServeError, "another thread serves"):
                    target.poll()
            target.stop()
            serving.join()
            self.assertTrue(target.run(), "it was stopped for good")
        self.assertFalse(os.path.exists(f"{self.folder.name}/own"))
        with self.assertRaises(farjump.Closed):
            target.poll()

    def test_a_target_serves_in_a_loop_of_the_programs(self):
        with farjump.Target(f"unix:{self.folder.name}/polled") as target:
            child = python(
                "import sys, farjump\n"
                "from support import library\n"
                "print(farjump.Link(sys.argv[1]).call(library('echo'), b'polled', timeout=10))",
                target.address,
            )
            ran, until = 0, time.monotonic() + WATCHDOG
            while ran == 0 and time.monotonic() < until:
                ran = target.poll()
            self.assertFalse(target.run(0.05), "nobody stopped it")
            self.assertIn("b'polled'", self.ends(child))

    def test_a_target_has_exports_and_functions_of_its_own(self):
        address = f"unix:{self.folder.name}/exporting"
        with farjump.Target(address, export_library=["libc.so.6"], local=[library("echo")]) as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(address, mode="local") as link:
                self.assertEqual(link.call(library("echo"), b"local", timeout=WATCHDOG), b"local")
                self.assertEqual(link.stats.code_bytes, 0)
            with farjump.Link(address) as link:
                self.assertEqual(link.call(library("slow"), milliseconds(1), timeout=WATCHDOG), milliseconds(1))
        serving.join()

    def test_a_target_is_reached_over_tcp(self):
        with farjump.Target("tcp:127.0.0.1:0", export_library=["libc.so.6"]) as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(target.address, transport="tcp") as link:
                self.assertEqual(link.call(library("echo"), bytes(3000), timeout=WATCHDOG), bytes(3000))
                self.assertTrue(link.peer.address.startswith("127.0.0.1:"))

                async def main():
                    return await asyncio.gather(*(link.inject(library("slow"), milliseconds(5)) for _ in range(5)))

                self.assertEqual(asyncio.run(main()), [milliseconds(5)] * 5)
        serving.join()

    def test_a_target_that_cannot_be_made_says_why(self):
        with self.assertRaises(farjump.Error):
            farjump.Target(self.address)
        with self.assertRaisesRegex(farjump.LibraryError, "libno-such"):
            farjump.Target(f"unix:{self.folder.name}/none", export_library=["libno-such.so"])

    def test_a_call_to_a_killed_target_raises_peer_gone(self):
        child = python(
            "import farjump, sys\n"
            "target = farjump.Target(sys.argv[1])\n"
            "print('ready', flush=True)\n"
            "target.run()",
            f"unix:{self.folder.name}/ending",
        )
        self.assertEqual(child.stdout.readline(), "ready\n")
        link = farjump.Link(f"unix:{self.folder.name}/ending")
        child.kill()
        child.communicate()
        with self.assertRaises(farjump.PeerGone):
            link.call(library("echo"), b"", timeout=WATCHDOG)
        link.close()


# Each prints that it waits, waits by its own method, and prints the cause of the wait's end.
INTERRUPTED = """
import asyncio, sys, farjump
from support import library, milliseconds
link = farjump.Link(sys.argv[1])
target = farjump.Target(sys.argv[1] + "-interrupted")
pending = link.inject(library("slow"), milliseconds(10_000))
async def awaits():
    await pending
ways = {
    "wait": pending.wait,
    "flush": link.flush,
    "run": target.run,
    "await": lambda: asyncio.run(awaits()),
}
print("ready", flush=True)
try:
    ways[sys.argv[2]]()
except KeyboardInterrupt:
    try:
        ended = pending.poll() is not None
    except farjump.Cancelled:
        ended = False
    print("after the call" if ended else "interrupted")
target.close()
"""


class Processes(WithTarget):
    def interrupted(self, way):
        child = python(INTERRUPTED, self.address, way)
        self.assertEqual(child.stdout.readline(), "ready\n")
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        self.assertIn("interrupted", self.ends(child))

    def setUp(self):
        # A target that sleeps in a call would delay the next test.
        self.tearDownClass()
        self.setUpClass()

    def tearDown(self):
        self.serving.kill()

    def test_ctrl_c_ends_a_wait(self):
        self.interrupted("wait")

    def test_ctrl_c_ends_a_flush(self):
        self.interrupted("flush")

    def test_ctrl_c_ends_a_target(self):
        self.interrupted("run")

    def test_ctrl_c_ends_an_event_loop(self):
        self.interrupted("await")


if __name__ == "__main__":
    unittest.main()
