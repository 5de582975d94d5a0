"""The programs of docs/dask.md, run as they stand."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest

from children import WithFolder

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..", "docs/dask.md")
# Longest time of the program, in seconds: a cluster starts and ends.
LONGEST = 120

MISSING = [name for name in ("distributed", "numba") if importlib.util.find_spec(name) is None]


class Dask(WithFolder):
    @unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")
    def test_the_program_of_the_page_prints_what_the_page_shows(self):
        with open(PAGE) as file:
            page = file.read()
        files = re.findall(r"^<!-- saved as: (\S+) -->\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        self.assertEqual([name for name, _ in files], ["functions.py", "workflow.py"])
        (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        folder = os.path.join(self.folder, "program")
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        for name, text in files:
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "workflow.py"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LONGEST,
        )
        self.assertEqual((done.returncode, done.stdout), (0, shown), done.stderr)
