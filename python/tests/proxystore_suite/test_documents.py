"""The blocks of Python in docs/guide/proxystore.md and README.md, run as they stand."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest

import farjump.proxystore
from children import WithFolder

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
PAGE = os.path.join(ROOT, "docs/guide/proxystore.md")


def blocks_of(page):
    with open(page) as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)


class Documents(WithFolder):
    def test_the_blocks_of_the_page_run(self):
        blocks = blocks_of(PAGE)
        self.assertGreater(len(blocks), 3)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            names = {}
            for block in blocks:
                exec(compile(block, "docs/guide/proxystore.md", "exec"), names)
        finally:
            os.chdir(before)

    @unittest.skipIf(importlib.util.find_spec("numba") is None, "there is no Numba")
    def test_the_program_of_the_readme_runs(self):
        [program] = blocks_of(os.path.join(ROOT, "README.md"))
        # The program starts an owner for this user, in a folder of this test. The folders are removed when the owner has ended.
        runtime, path = os.path.join(self.folder, "run"), os.path.join(self.folder, "program.py")
        os.mkdir(runtime, 0o700)
        with open(path, "w") as file:
            file.write(program)
        try:
            ended = subprocess.run(
                [sys.executable, path],
                env={**os.environ, "XDG_RUNTIME_DIR": runtime},
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual((ended.stdout, ended.returncode), ("499999500000.0\n", 0), ended.stderr)
            self.wait_for_owners()
        finally:
            os.remove(path)
            shutil.rmtree(runtime)

    def test_the_arguments_of_the_connector_are_there(self):
        with open(PAGE) as file:
            page = file.read()
        with farjump.proxystore.FarjumpConnector(self.address) as connector:
            for name in ("address", "clear", *connector._options):
                self.assertIn(f"| `{name}` |", page)
