"""NumPy's arrays and numbers as arguments and data, where the interpreter finds NumPy."""

import importlib.util
import threading
import unittest

import farjump
from support import WATCHDOG, WithTarget, library

if importlib.util.find_spec("numpy"):
    import numpy


@unittest.skipUnless(importlib.util.find_spec("numpy"), "there is no NumPy")
class Arrays(WithTarget):
    def test_contiguous_arrays_travel_as_their_bytes(self):
        link, echo = self.link(), library("echo")
        table = numpy.arange(12, dtype="f4").reshape(3, 4)
        pairs = numpy.zeros(3, dtype=[("key", "i4"), ("value", "f8")])
        whole = numpy.array(7, dtype="i8")
        for array in (table, table[1:], table[:0], pairs, whole, whole[()], numpy.float32(1.5), numpy.arange(100_000)):
            with self.subTest(array):
                self.assertEqual(link.call(echo, array, timeout=WATCHDOG), array.tobytes())

    def test_rows_are_mapped_and_replies_are_arrays_again(self):
        link, echo = self.link(), library("echo")
        table = numpy.random.default_rng(1).random((500, 16), dtype="f4")
        replies = link.map(echo, table).wait(WATCHDOG)
        self.assertTrue((numpy.frombuffer(b"".join(replies), "f4").reshape(table.shape) == table).all())

    def test_arrays_that_are_not_contiguous_are_refused(self):
        link, echo = self.link(), library("echo")
        table = numpy.arange(12).reshape(3, 4)
        for array in (table.T, table[:, 1], table[::2]):
            with self.assertRaisesRegex(BufferError, "side by side"):
                link.call(echo, array)
        with self.assertRaisesRegex(TypeError, "references to objects"):
            link.call(echo, numpy.array([None, "text"], dtype=object))
        with self.assertRaises(ValueError):
            link.call(echo, numpy.array(["2026-01-01"], dtype="M8[D]"))

    def test_an_array_is_data_of_a_target(self):
        data = numpy.arange(100, dtype="i8")
        with farjump.Target(f"unix:{self.folder.name}/data", data=data) as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(target.address) as link:
                reply = link.call(library("length"), b"", timeout=WATCHDOG)
                self.assertEqual(int.from_bytes(reply, "little"), data.nbytes)
            target.stop()
            serving.join()


if __name__ == "__main__":
    unittest.main()
