"""Processes of the tests, each with a watchdog, and owners that they leave."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest

from farjump.proxystore import FarjumpConnector

# Longest time of a child, in seconds.
WATCHDOG = 60
HEAD = f"""
import os, pickle, signal, sys
signal.alarm({WATCHDOG})
import farjump
from farjump.proxystore import *
address = sys.argv[1]
"""


def owners_of(folder):
    """Returns the ids of owner processes with addresses in a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/stat") as file:
                is_dead = file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if b"farjump.owner" in words and any(folder.encode() in word for word in words) and not is_dead:
            found.append(int(name))
    return found


class WithFolder(unittest.TestCase):
    """Tests with a folder for addresses. After each test it is empty, and no owner runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="farjump-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.address = f"unix:{self.folder}/store"
        self.addCleanup(self.ends_all)

    def wait_for_owners(self):
        """Waits until all owners have ended, and returns those that do not."""
        for _ in range(2000):
            left = owners_of(self.folder)
            if not left:
                break
            time.sleep(0.01)
        return left

    def ends_all(self):
        """Waits until all owners have ended, and kills those that do not."""
        left = self.wait_for_owners()
        for owner in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(owner, 9)
        self.assertEqual(left, [], "owners that did not end")
        self.assertEqual(os.listdir(self.folder), [])

    def connector(self, **options):
        """Makes a connector, closed after the test."""
        connector = FarjumpConnector(self.address, **options)
        self.addCleanup(connector.close)
        return connector

    def owner(self):
        """Returns the id of the only owner."""
        (owner,) = owners_of(self.folder)
        return owner

    def child(self, script, *arguments, **options):
        """Starts a Python process that runs a script, with the address as its first argument."""
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", HEAD + script, self.address, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        )
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def ended(self, child, text=b""):
        """Waits for a child, checks its exit status, and returns its output."""
        output, _ = child.communicate(text, timeout=2 * WATCHDOG)
        self.assertEqual(child.returncode, 0, output.decode(errors="replace"))
        return output

    def gone(self, owner):
        """Waits until a process has ended."""
        for _ in range(1000):
            if owner not in owners_of(self.folder):
                return
            time.sleep(0.01)
        self.fail("the owner did not end")
