"""The blocks of Python in the documents, run as they stand, and the names in the stubs."""

import ast
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import farjump
from farjump import _native
from support import ROOT, WATCHDOG, WithTarget


class Documents(WithTarget):
    def setUp(self):
        self.before = os.getcwd()
        os.chdir(self.folder.name)
        os.symlink("target", "store.sock")
        shutil.copy(os.path.join(os.environ["TEST_LIBRARIES"], "libecho.so"), "libecho.so")

    def tearDown(self):
        os.chdir(self.before)
        os.remove(os.path.join(self.folder.name, "store.sock"))

    def runs(self, page):
        with open(os.path.join(ROOT, page)) as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
        self.assertTrue(blocks)
        names = {}
        for block in blocks:
            exec(compile(block, page, "exec"), names)
        names["link"].close()

    def test_the_blocks_of_the_page_run(self):
        self.runs("docs/guide/python.md")

    @unittest.skipIf(importlib.util.find_spec("numba") is None, "there is no Numba")
    def test_the_blocks_about_functions_run(self):
        self.runs("docs/guide/python-functions.md")

    def test_every_name_of_the_package_is_documented_there(self):
        with open(os.path.join(ROOT, "docs/guide/python.md")) as file:
            page = file.read()
        for name in farjump.__all__:
            if name not in ("LinkStats", "Peer"):
                self.assertTrue(name in page, name)

    def test_the_stubs_name_what_there_is(self):
        with open(os.path.join(os.path.dirname(farjump.__file__), "_native.pyi")) as file:
            stubs = ast.parse(file.read())
        for stub in (one for one in stubs.body if isinstance(one, ast.ClassDef)):
            stated = {one.name for one in stub.body if isinstance(one, ast.FunctionDef)}
            there = {name for name in vars(getattr(_native, stub.name)) if not name.startswith("__")}
            self.assertEqual({name for name in stated if not name.startswith("__")}, there, stub.name)
            for one in stub.body:
                if getattr(one, "name", None) == "__new__":
                    shown = inspect.signature(getattr(_native, stub.name)).parameters.values()
                    named = {one.name: one.default for one in shown if one.kind is one.KEYWORD_ONLY}
                    defaults = map(ast.literal_eval, one.args.kw_defaults)
                    stated = dict(zip((argument.arg for argument in one.args.kwonlyargs), defaults, strict=True))
                    # Further keywords are options: test_options.py has them all.
                    self.assertEqual({name: stated[name] for name in named}, named)
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(farjump.__file__), "py.typed")))


@unittest.skipIf(importlib.util.find_spec("numba") is None, "there is no Numba")
class Start(unittest.TestCase):
    """The commands of docs/start/python.md, with its programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="farjump-start-")
        self.addCleanup(folder.cleanup)
        self.options = {
            "cwd": folder.name,
            "env": dict(os.environ, PYTHONWARNINGS="ignore"),
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
        }
        with open(os.path.join(ROOT, "docs/start/python.md")) as file:
            self.page = file.read()
        programs = re.findall(r"`(\w+\.py)`[^`]*:\n\n```python\n(.*?)^```", self.page, re.DOTALL | re.MULTILINE)
        self.assertEqual(len(programs), self.page.count("\n```python\n"), "each has a name in front")
        for name, text in programs:
            with open(os.path.join(folder.name, name), "w") as file:
                file.write(text)

    def test_the_commands_of_the_page_print_what_it_shows(self):
        blocks = re.findall(r"^```console\n(\$ python .*?)^```", self.page, re.DOTALL | re.MULTILINE)
        owner, ran = None, []
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE):
            words = [sys.executable if word == "python" else word for word in shlex.split(command)]
            if command == "kill %1":
                owner.terminate()
                self.assertEqual(owner.wait(WATCHDOG), 0)
                printed = owner.stdout.read()
            elif words[-1] == "&":
                owner = subprocess.Popen(words[:-1], **self.options)
                for cleanup in (owner.stdout.close, owner.wait, owner.kill):
                    self.addCleanup(cleanup)
                printed = owner.stdout.readline()
            else:
                printed = subprocess.run(words, timeout=WATCHDOG, **self.options).stdout
            # The page has … in place of text that differs between machines.
            expected = re.escape(shown).replace("…", ".*")
            self.assertTrue(re.fullmatch(expected, printed, re.DOTALL), f"{command}: {printed}")
            ran.append(command)
        self.assertEqual([ran[0][-1], ran[-1]], ["&", "kill %1"], "an owner begins and ends")


if __name__ == "__main__":
    unittest.main()
