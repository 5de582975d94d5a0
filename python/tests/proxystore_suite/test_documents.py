"""The blocks of Python in docs/proxystore.md, run as they stand."""

import os
import re

import farjump.proxystore
from children import WithFolder

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..", "docs/proxystore.md")


class Documents(WithFolder):
    def test_the_blocks_of_the_page_run(self):
        with open(PAGE) as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
        self.assertGreater(len(blocks), 3)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            names = {}
            for block in blocks:
                exec(compile(block, "docs/proxystore.md", "exec"), names)
        finally:
            os.chdir(before)

    def test_the_arguments_of_the_connector_are_there(self):
        with open(PAGE) as file:
            page = file.read()
        with farjump.proxystore.FarjumpConnector(self.address) as connector:
            for name in ("address", "clear", *connector._options):
                self.assertIn(f"| `{name}` |", page)
