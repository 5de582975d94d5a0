"""Proxies as arguments of Dask's tasks, in a cluster of one worker process."""

import os
import unittest

from children import WithFolder

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"there is no Dask ({error})")

# A cluster in a process of its own, which spawns the worker. `stores` has the stores, `ask` submits a task.
CLUSTER = """
import sys
from distributed import Client, LocalCluster
from farjump.proxystore import FarjumpConnector, FarjumpStore
from proxystore.store import Store

LIMIT = 60

if __name__ == "__main__":
    connector = FarjumpConnector(sys.argv[1])
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        populated = FarjumpStore("populated", connector, register=True, populate_target=True)
        plain = FarjumpStore("plain", connector, register=True)
        for store, evict in ((populated, True), (populated, False), (plain, False)):
            print(client.submit(sum, store.proxy([1, 2, 3], evict=evict)).result(LIMIT))
        # Dask fetches it to name the task, and so evicts it: the task has an error, and the cluster works on.
        try:
            print("wrong", client.submit(sum, plain.proxy([1, 2, 3], evict=True)).result(LIMIT))
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__
            print(type(error).__name__)
        print(client.submit(sum, [1, 2]).result(LIMIT))
    connector.close(clear=True)
"""

CLIENT = """
import sys
from farjump.proxystore import FarjumpConnector, FarjumpStore
from proxystore.proxy import Proxy
from proxystore_ex.plugins.distributed import Client


def square(number):
    return number * number


if __name__ == "__main__":
    with FarjumpStore("client", FarjumpConnector(sys.argv[1]), register=True) as store:
        with Client(ps_store=store, ps_threshold=0, n_workers=1, processes=True, dashboard_address=None) as client:
            total = client.submit(sum, [1, 2, 3]).result()
            print(isinstance(total, Proxy), total + 0)
            for options in ({}, {"batch_size": 2}):
                print([future.result() + 0 for future in client.map(square, [1, 2, 3], **options)])
"""


class Dask(WithFolder):
    def runs(self, script):
        """Runs a script, which Dask's worker imports, and returns what it prints."""
        path = f"{self.folder}/script.py"
        with open(path, "w") as file:
            file.write(script)
        self.addCleanup(os.remove, path)
        child = self.child("import runpy\nsignal.alarm(120)\nsys.argv = [sys.argv[2], address]\n"
                           "runpy.run_path(sys.argv[0], run_name='__main__')\n", path, cwd=self.folder)
        return child.communicate(timeout=150)[0].decode()

    def test_the_documented_settings_give_results_and_what_was_evicted_is_an_error(self):
        said = self.runs(CLUSTER)
        self.assertEqual([line for line in said.splitlines() if line.isalnum()], ["6", "6", "6", "Gone", "3"], said)

    def test_the_client_of_proxystore_ex_uses_a_store_of_ours(self):
        self.assertIn("True 6\n[1, 4, 9]\n[1, 4, 9]\n", self.runs(CLIENT))
