"""Targets and child processes of the tests, each with a watchdog."""

import ast
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import unittest

import farjump

# Longest time of a child, in seconds.
WATCHDOG = 60
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def library(name):
    """Opens an ifunc library of the tests."""
    return farjump.Library(os.path.join(os.environ["TEST_LIBRARIES"], f"lib{name}.so"))


def milliseconds(number):
    """Returns the arguments of `slow`."""
    return number.to_bytes(2, "little")


def options(name):
    """Returns the names of the keyword arguments of a class or a method, as the stubs list them: `Target`, `Store.publisher`."""
    with open(os.path.join(os.path.dirname(farjump.__file__), "_native.pyi")) as file:
        stubs = ast.parse(file.read())
    kind, _, method = name.partition(".")
    found = [
        one
        for stub in stubs.body
        if isinstance(stub, ast.ClassDef) and stub.name == kind
        for one in stub.body
        if isinstance(one, ast.FunctionDef) and one.name == (method or "__new__")
    ]
    return [argument.arg for one in found for argument in one.args.kwonlyargs]


@contextlib.contextmanager
def served(address, **choices):
    """Serves a target on a thread, and yields it."""
    with farjump.Target(address, **choices) as target:
        serving = threading.Thread(target=target.run)
        serving.start()
        yield target
    serving.join()


def python(script, *args, **options):
    """Starts a Python process that runs `script`, and ends itself after the watchdog's time."""
    # Not faulthandler's watchdog: it is a thread, and a forked child without it cannot end.
    head = f"import signal; signal.alarm({WATCHDOG})\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # The tests' folder, as the current one could hold another farjump.
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)), PYTHONWARNINGS="ignore")
    return subprocess.Popen([sys.executable, "-c", head + script, *args], env=env, **pipes, **options)


def kept():
    """Returns the number of descriptors of this process, and the bytes of owners' memory that it has mapped."""
    mapped = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:farjump-objects" in line:
                start, end = line.split(" ", 1)[0].split("-")
                mapped += int(end, 16) - int(start, 16)
    return len(os.listdir("/proc/self/fd")), mapped


@contextlib.contextmanager
def few_descriptors():
    """Limits this process to 256 descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class WithTarget(unittest.TestCase):
    """Tests with a target in a process of its own: the program `farjump serve`."""

    # Further arguments of the program.
    SERVES: tuple[str, ...] = ()
    # Longest life of the target, in seconds: that of all tests of the class, on a busy machine.
    LIFE = 7 * WATCHDOG

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="farjump-python-")
        cls.address = f"unix:{cls.folder.name}/target"
        command = [os.environ["TEST_PROGRAM"], "serve", "--listen", cls.address, "--export-library", "libc.so.6", *cls.SERVES]
        cls.serving = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        cls.watchdog = threading.Timer(cls.LIFE, cls.serving.kill)
        cls.watchdog.daemon = True
        cls.watchdog.start()
        for _ in range(1000):
            try:
                farjump.Link(cls.address).close()
                break
            except farjump.ConnectError:
                threading.Event().wait(0.01)

    @classmethod
    def tearDownClass(cls):
        cls.serving.terminate()
        cls.serving.wait()
        cls.watchdog.cancel()
        cls.folder.cleanup()

    def link(self, **options):
        """Makes a link to the target, closed after the test."""
        link = farjump.Link(self.address, **options)
        self.addCleanup(link.close)
        return link

    def ends(self, child, text=""):
        """Waits for a child, checks its exit status, and returns its output."""
        output, _ = child.communicate(text, timeout=2 * WATCHDOG)
        self.assertEqual(child.returncode, 0, output)
        return output
