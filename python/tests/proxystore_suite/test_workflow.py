"""The workflow of python/benches runs, and measures each way."""

import json
import os
import subprocess
import sys
import unittest

WORKFLOW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benches", "workflow.py")


@unittest.skipUnless(os.path.exists(os.environ.get("TEST_PROGRAM", "")), "the program farjump is not built")
class Workflow(unittest.TestCase):
    def test_a_workflow_is_measured(self):
        command = [sys.executable, WORKFLOW, "--program", os.environ["TEST_PROGRAM"]]
        command += ["--rounds", "2", "--sizes", "10000", "--tasks", "2", "--json"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertTrue({"in the message", "file connector", "farjump"} <= {row["way"] for row in rows})
        for row in rows:
            self.assertGreater(row["median_us"], 0)


if __name__ == "__main__":
    unittest.main()
