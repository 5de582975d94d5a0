"""The measurements run, and print their figures. Their bounds are for release builds on quiet machines."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

BENCHES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benches")


class Benches(unittest.TestCase):
    def test_calls_are_measured(self):
        command = [sys.executable, os.path.join(BENCHES, "calls.py"), "--program", os.environ["TEST_PROGRAM"]]
        command += ["--rounds", "2", "--calls", "200", "--flights", "1", "--json"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100
        )
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report = json.loads(done.stdout)
        cases = {case["name"]: case for case in report["cases"]}
        for name in ("call from Rust", "Link.call", "done futures", "farjump.gather", "tasks"):
            self.assertEqual(len(cases[name]["rounds_ns"]), 2)
            self.assertGreater(cases[name]["median_ns"], 0)
        self.assertEqual(done.returncode == 0, all(bound["holds"] for bound in report["bounds"]))

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "there is no NumPy")
    def test_objects_are_measured(self):
        command = [sys.executable, os.path.join(BENCHES, "store.py"), "--program", os.environ["TEST_PROGRAM"]]
        command += ["--rounds", "2", "--calls", "10", "--only", "bytes", "--json"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100
        )
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report, _ = json.JSONDecoder().raw_decode(done.stdout)
        cases = {case["name"]: case for case in report["cases"]}
        for name in ("empty call", "get 64 B", "get 1 MiB, read", "put 1 MiB, first"):
            self.assertGreater(cases[name]["median_ns"], 0)


if __name__ == "__main__":
    unittest.main()
