"""The stubs, by mypy, where the interpreter finds that."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))


@unittest.skipUnless(importlib.util.find_spec("mypy"), "there is no mypy")
class Types(unittest.TestCase):
    def checked(self, *command):
        with tempfile.TemporaryDirectory(prefix="farjump-mypy-") as folder:
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=300,
            )
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_stubs_are_those_of_the_module(self):
        self.checked(
            "mypy.stubtest", "farjump", "--mypy-config-file", os.path.join(FOLDER, "mypy.ini"), "--allowlist",
            os.path.join(FOLDER, "mypy_allowed.txt"), "--ignore-unused-allowlist",
        )

    def test_a_program_has_the_types_that_it_states(self):
        self.checked("mypy", "--strict", "--python-version", "3.11", "--cache-dir", "cache", os.path.join(FOLDER, "typed.py"))


if __name__ == "__main__":
    unittest.main()
