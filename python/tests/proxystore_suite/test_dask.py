"""Programs with Dask, one after the other, in one cluster of two worker processes: a cluster takes seconds to start."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

from children import HEAD

if importlib.util.find_spec("distributed") is None:
    raise unittest.SkipTest("there is no Dask")

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
WORKFLOW = os.path.join(ROOT, "python/benches/workflow.py")
# Longest time of all programs, in seconds.
LONGEST = 240
WITHOUT_NUMBA = importlib.util.find_spec("numba") is None
WITHOUT_PROGRAM = not os.path.exists(os.environ.get("TEST_PROGRAM", ""))

# Runs programs as main scripts: each is the words of a command. The first program starts the cluster, which imports that
# script. The others must request the same cluster.
HOST = f"""
import contextlib, io, json, runpy, traceback
import dask.distributed, distributed

signal.alarm({LONGEST})
start, started = distributed.LocalCluster, []


def cluster(local_directory=None, **options):
    if not started:
        started.append((options, start(**options)))
    asked, one = started[0]
    assert options == asked, (options, asked)
    return contextlib.nullcontext(one)


dask.distributed.LocalCluster = distributed.LocalCluster = cluster
said = []
for words in json.loads(sys.argv[1]):
    sys.argv, output = words, io.StringIO()
    sys.path.insert(0, os.path.dirname(words[0]))
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as end:
            print(f"exit code {{end.code}}" if end.code else "", end="")
        except BaseException:
            traceback.print_exc(file=output)
    said.append(output.getvalue())
for _, one in started:
    one.close()
print(json.dumps(said))
"""

STORES = """
import sys
from distributed import Client, LocalCluster
from farjump.proxystore import FarjumpConnector, FarjumpStore

LIMIT = 60


def cause(error):
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


if __name__ == "__main__":
    connector = FarjumpConnector(sys.argv[1])
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster as cluster, Client(cluster) as client:
        populated = FarjumpStore("populated", connector, register=True, populate_target=True)
        plain = FarjumpStore("plain", connector, register=True)
        for store, evict in ((populated, True), (populated, False), (plain, False)):
            print(client.submit(sum, store.proxy([1, 2, 3], evict=evict)).result(LIMIT))
        # Dask fetches it to name the task, and so evicts it: the task has an error, and the cluster works on.
        try:
            print("wrong", client.submit(sum, plain.proxy([1, 2, 3], evict=True)).result(LIMIT))
        except Exception as error:
            print(cause(error))
        # With `map` the scheduler fetches it, and so evicts it.
        (mapped,) = client.map(sum, [populated.proxy([1, 2, 3], evict=True)])
        print(cause(mapped.exception(LIMIT)))
        print(client.submit(sum, [1, 2]).result(LIMIT))
    connector.close(clear=True)
"""

CLIENT = """
import sys
from distributed import LocalCluster
from farjump.proxystore import FarjumpConnector, FarjumpStore
from proxystore.proxy import Proxy
from proxystore_ex.plugins.distributed import Client


def square(number):
    return number * number


if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster as cluster, FarjumpStore("client", FarjumpConnector(sys.argv[1]), register=True) as store:
        with Client(cluster, ps_store=store, ps_threshold=0) as client:
            total = client.submit(sum, [1, 2, 3]).result()
            print(isinstance(total, Proxy), total + 0)
            for options in ({}, {"batch_size": 2}):
                print([future.result() + 0 for future in client.map(square, [1, 2, 3], **options)])
"""


class Dask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="farjump-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        with open(os.path.join(ROOT, "docs/guide/dask.md")) as file:
            page = file.read()
        files = dict(re.findall(r"^<!-- saved as: (\S+) -->\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
        assert list(files) == ["functions.py", "workflow.py"], files.keys()
        (cls.shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for name, text in {**files, "stores.py": STORES, "client.py": CLIENT}.items():
            with open(os.path.join(cls.folder, name), "w") as file:
                file.write(text)
        programs = {} if WITHOUT_NUMBA else {"page": ["workflow.py"]}
        programs |= {"stores": ["stores.py", "unix:stores.sock"], "client": ["client.py", "unix:client.sock"]}
        if not WITHOUT_PROGRAM:
            options = ["--rounds", "2", "--sizes", "10000", "--tasks", "2", "--json"]
            programs["workflow"] = [WORKFLOW, "--program", os.environ["TEST_PROGRAM"], *options]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", HEAD + HOST, json.dumps([*programs.values()])],
            cwd=cls.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=2 * LONGEST,
        )
        assert done.returncode == 0, done.stderr
        cls.said = dict(zip(programs, json.loads(done.stdout.splitlines()[-1]), strict=True))

    @unittest.skipIf(WITHOUT_NUMBA, "there is no Numba")
    def test_the_program_of_the_page_prints_what_the_page_shows(self):
        self.assertEqual(self.said["page"], self.shown)

    def test_documented_settings_give_results_and_evicted_data_is_an_error(self):
        self.assertEqual(self.said["stores"], "6\n6\n6\nGone\nGone\n3\n")

    def test_the_client_of_proxystore_ex_uses_a_store_of_ours(self):
        self.assertEqual(self.said["client"], "True 6\n[1, 4, 9]\n[1, 4, 9]\n")

    @unittest.skipIf(WITHOUT_PROGRAM, "the program farjump is not built")
    def test_a_workflow_is_measured(self):
        rows = json.loads(self.said["workflow"])["rows"]
        for executor in ("concurrent.futures", "Dask"):
            ways = {row["way"] for row in rows if row["executor"] == executor}
            self.assertEqual(ways, {"in the message", "file connector", "farjump"})
        for row in rows:
            self.assertGreater(row["median_us"], 0)

    def test_the_owners_end_with_the_cluster(self):
        def left():
            return [name for name in os.listdir(self.folder) if ".sock" in name]

        until = time.monotonic() + 20
        while left() and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(left(), [])
