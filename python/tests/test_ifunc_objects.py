"""Functions in Python with objects of a target as arguments, and as outputs."""

import threading
import unittest

import farjump
from support import WATCHDOG, WithTarget

try:
    import numpy as np

    import farjump._arrays as arrays
    from test_ifunc import nearest
except ImportError as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")
if not hasattr(farjump, "Store"):
    raise unittest.SkipTest("there are no stores in this version")


@farjump.ifunc("f4[:, ::1], f4, out f4[:, ::1] -> none")
def scaled(rows, factor, result):
    if factor == 0:
        raise ValueError("no factor")
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            result[i, j] = rows[i, j] * factor


class Objects(WithTarget):
    def setUp(self):
        target = farjump.Target(f"unix:{self.folder.name}/{self.id()[-20:]}", objects=1 << 20)
        serving = threading.Thread(target=target.run)
        serving.start()
        self.addCleanup(serving.join)
        self.addCleanup(target.close)
        self.owner, self.store = farjump.Link(target.address), farjump.Store(target.address)
        self.addCleanup(self.owner.close)
        self.addCleanup(self.store.close)

    def put(self, array):
        return self.store.put_parts([arrays.header(array), array.reshape(-1).view("u1")])

    def test_a_function_gets_the_array_of_a_handle(self):
        rows = np.random.default_rng(2).random((1000, 16), dtype="f4")
        handle = self.put(rows)
        self.assertEqual(self.owner.call(nearest, handle, rows[321], timeout=WATCHDOG), 321)
        self.assertEqual(self.owner.inject(nearest, handle, self.put(rows[5])).wait(WATCHDOG), 5)
        sent = self.owner.stats.payload_bytes
        self.assertLess(sent, 2000)

    def test_an_output_becomes_an_object_that_functions_take(self):
        rows = np.eye(4, dtype="f4")
        made = farjump.Handle(self.owner.call(scaled._derive(), self.put(rows), 3.0, timeout=WATCHDOG))
        np.testing.assert_array_equal(arrays.view(self.store.get(made)), rows * 3)
        again = farjump.Handle(self.owner.inject(scaled._derive(), made, 2.0).wait(WATCHDOG))
        np.testing.assert_array_equal(arrays.view(self.store.get(again)), rows * 6)
        self.assertEqual(self.owner.call(nearest, again, rows[2] * 6, timeout=WATCHDOG), 2)

    def test_objects_that_cannot_be_used_are_named(self):
        rows = np.eye(4, dtype="f4")
        evicted = self.put(rows)
        self.store.evict(evicted)
        for handle, error, words in (
            (evicted, farjump.Gone, "`rows` of `nearest` is gone"),
            (self.store.put(bytes(100)), farjump.Panicked, "`rows` of `nearest` is no array"),
            (self.put(rows.astype("f8")), farjump.Panicked, r"`rows` of `nearest` is an array, but none of type f4\[:, ::1\]"),
            (self.put(rows[0]), farjump.Panicked, "none of type"),
            (self.store.reserve(), farjump.Unset, "reserved, and has no contents"),
        ):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                self.owner.call(nearest, handle, rows[0], timeout=WATCHDOG)
        with farjump.Target(f"unix:{self.folder.name}/without") as without:
            serving = threading.Thread(target=without.run)
            serving.start()
            with farjump.Link(without.address) as link:
                with self.assertRaisesRegex(farjump.Panicked, "the target has no store of objects.*`rows`"):
                    link.call(nearest, self.put(rows), rows[0], timeout=WATCHDOG)
                self.assertEqual(link.call(nearest, rows, rows[3], timeout=WATCHDOG), 3)
        serving.join()
        with self.assertRaisesRegex(farjump.StoreFull, "no memory for the output `result` of `scaled`"):
            self.owner.call(scaled._derive((1024, 1024)), self.put(rows), 1.0, timeout=WATCHDOG)
        with self.assertRaisesRegex(ValueError, "no factor"):
            self.owner.call(scaled._derive(), self.put(rows), 0.0, timeout=WATCHDOG)


if __name__ == "__main__":
    unittest.main()
