"""Every callable called with all kinds of values, in a process of its own: see everything.py."""

import os
import signal
import subprocess
import sys
import unittest

import farjump
from support import WithTarget

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Longest time of the process, in seconds. A hang ends it.
LIMIT = 120


class Everything(WithTarget):
    LIFE = 2 * LIMIT

    def calls(self, way):
        """Calls everything, checks the exit status, and returns the called names."""
        command = [sys.executable, "-X", "faulthandler", os.path.join(FOLDER, "everything.py")]
        command += [self.address, self.folder.name, way]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, **pipes) as child:
            try:
                output, _ = child.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGABRT)
                output, _ = child.communicate()
        self.assertEqual(child.returncode, 0, output[-8000:])
        return output.splitlines()

    def test_nothing_that_is_called_with_anything_does_worse_than_raise(self):
        called = self.calls("plain")
        for name in farjump.__all__:
            self.assertIn(name, called)
        for name in ("Link.call", "Link.map", "Pending.wait", "Pendings.wait", "Store.put", "Store.wait", "Target.poll", "Replies.__next__"):
            self.assertIn(name, called)

    def test_nothing_called_in_an_event_loop_does_worse_than_raise(self):
        called = self.calls("loop")
        for name in ("Link.inject_async", "Pendings.__await__", "Pending.__await__", "next(Ready)"):
            self.assertIn(name, called)


if __name__ == "__main__":
    unittest.main()
