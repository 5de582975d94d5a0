"""Functions at the data of proxies, which stay unresolved."""

import unittest

import numpy

import farjump
from children import WithFolder
from farjump.proxystore import FarjumpConnector, FarjumpStore
from proxystore.proxy import Proxy, is_resolved
from proxystore.store import Store

try:
    import numba  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")

# Longest time of a call, in seconds.
LIMIT = 20


@farjump.ifunc("f4[:, ::1], f4[::1] -> i8")
def nearest(rows, query):
    best, at = numpy.inf, -1
    for i in range(rows.shape[0]):
        distance = 0.0
        for j in range(query.shape[0]):
            distance += (rows[i, j] - query[j]) ** 2
        if distance < best:
            best, at = distance, i
    return at


@farjump.ifunc("f4[:, ::1], out f4[:, ::1] -> none")
def halved(rows, result):
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            result[i, j] = rows[i, j] / 2


class Places(WithFolder):
    def setUp(self):
        super().setUp()
        self.store = FarjumpStore("places", FarjumpConnector(self.address), register=True)
        self.addCleanup(self.store.close, clear=True)
        self.rows = numpy.random.default_rng(3).random((200, 8), dtype="f4")

    def test_a_function_runs_at_the_owner_of_a_proxy_or_here(self):
        proxy = self.store.proxy(self.rows)
        for place in ("owner", "here", "auto", "auto"):
            self.assertEqual(farjump.at(proxy, nearest, self.rows[7], place=place, timeout=LIMIT), 7)
        self.assertEqual(farjump.map([proxy, proxy], nearest, self.rows[3]).wait(LIMIT), [3, 3])
        self.assertEqual(farjump.at(self.store.put(self.rows), nearest, self.rows[9], timeout=LIMIT), 9)
        self.assertFalse(is_resolved(proxy))

    def test_a_proxy_is_made_of_a_proxy_and_no_bytes_move(self):
        proxy = self.store.proxy(self.rows)
        made = farjump.derive(proxy, halved, timeout=LIMIT)
        self.assertIs(type(made), Proxy)
        self.assertEqual(farjump.at(made, nearest, self.rows[5] / 2, timeout=LIMIT), 5)
        self.assertFalse(is_resolved(proxy) or is_resolved(made))
        numpy.testing.assert_array_equal(numpy.asarray(made), self.rows / 2)

    def test_what_is_no_array_of_ours_is_refused(self):
        with Store("plain", FarjumpConnector(self.address), register=True) as plain:
            with self.assertRaisesRegex(farjump.Panicked, "is no array"):
                farjump.at(plain.proxy(b"x"), nearest, self.rows[0], timeout=LIMIT)


if __name__ == "__main__":
    unittest.main()
