"""Functions in Python, injected into a target that has no Python."""

import asyncio
import copy
import ctypes
import gc
import importlib.util
import inspect
import math
import os
import pickle
import threading
import unittest

import farjump
from support import WATCHDOG, WithTarget, python

try:
    import numba
    import numpy as np
    from numba import cloudpickle
except ImportError as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")


class Empty(Exception):
    """An exception of the functions' own."""


@farjump.ifunc("f4[:, ::1], f4[::1] -> i8")
def nearest(rows, query):
    """The row that is nearest to the query."""
    if query.shape[0] == 0:
        raise ValueError("the query is empty", 3)
    if rows.shape[0] == 0:
        raise Empty
    best, at = np.inf, -1
    for i in range(rows.shape[0]):
        distance = 0.0
        for j in range(query.shape[0]):
            distance += (rows[i, j] - query[j]) ** 2
        if distance < best:
            best, at = distance, i
    return at


@numba.njit
def total(row):
    if row.shape[0] == 3:
        raise KeyError("deep")
    return row[1:].sum()


@numba.njit
def made(n):
    return np.zeros(n)[0]


LARGE, SMALL = np.arange(200_000.0), np.arange(10.0)


class Injected(WithTarget):
    def test_a_function_runs_at_the_target_as_it_does_here(self):
        rows = np.random.default_rng(1).random((500, 16), dtype="f4")
        link = self.link()
        for at in (0, 77, 499):
            self.assertEqual(link.call(nearest, rows, rows[at], timeout=WATCHDOG), at)
            self.assertEqual(nearest(rows, rows[at]), at)
        self.assertEqual(link.stats.frames_with_code, 1)
        self.assertEqual((nearest.__name__, nearest.__doc__), ("nearest", "The row that is nearest to the query."))

    def test_calls_are_pending_awaited_and_sent_without_a_reply(self):
        link, rows = self.link(), np.eye(4, dtype="f4")
        pending = [link.inject(nearest, rows, rows[at]) for at in range(4)]
        self.assertEqual([one.wait(WATCHDOG) for one in pending], [0, 1, 2, 3])
        self.assertEqual((pending[2].poll(), pending[2].wait()), (2, 2))

        async def main():
            later = [link.inject(nearest, rows, rows[at % 4]) for at in range(50)]
            return [await one for one in later] + await asyncio.gather(link.inject(nearest, rows, rows[3]))

        self.assertEqual(asyncio.run(main()), [at % 4 for at in range(50)] + [3])
        link.send(nearest, rows, rows[0])
        link.flush(WATCHDOG)

    def test_numbers_of_every_type_go_there_and_come_back(self):
        link = self.link()
        types = "b1, i1, u2, i4, u8, f4, f8, c8, c16, i8"
        values = (True, -3, 65535, -(2**31), 2**64 - 1, 1.5, -0.1, 1 + 2j, 3 - 4j, -(2**63))

        @farjump.ifunc(f"{types} -> ({types})")
        def all_of(a, b, c, d, e, f, g, h, i, j):
            return a, b, c, d, e, f, g, h, i, j

        found = link.call(all_of, *values, timeout=WATCHDOG)
        self.assertEqual(found, values)
        self.assertEqual([type(one) for one in found], [type(one) for one in values])

        @farjump.ifunc("int32, bool -> none")
        def nothing(number, flag):
            pass

        self.assertIsNone(link.call(nothing, np.int16(3), np.bool_(True), timeout=WATCHDOG))

    def test_arrays_of_every_type_and_rank_go_there(self):
        link = self.link()
        for code in ("b1", "i1", "u1", "i2", "u4", "i8", "f4", "f8", "c8", "c16"):
            last = farjump.ifunc(f"{code}[:, :, ::1], u1[::1] -> {code}")(lambda a, b: a[-1, a.shape[1] - 1, b[2]])
            array = np.arange(2 * 3 * 5).reshape(2, 3, 5).astype(code)
            with self.subTest(code):
                self.assertEqual(link.call(last, array, bytes([0, 0, 4]), timeout=WATCHDOG), array[-1, 2, 4])
        shape = farjump.ifunc("f8[:, :, :, :, ::1] -> (i8, i8, i8)")(lambda a: (a.size, a.shape[4], a.strides[1]))
        self.assertEqual(link.call(shape, np.zeros((2, 0, 3, 1, 9)), timeout=WATCHDOG), (0, 9, 3 * 9 * 8))

    def test_other_functions_slices_and_constant_arrays_travel(self):
        @farjump.ifunc("f8[:, ::1] -> f8")
        def mixed(rows):
            sums = 0.0
            for i in range(rows.shape[0]):
                sums += total(rows[i]) + SMALL[i]
            return sums + np.argmin(rows[0]) + rows.mean()

        rows = np.arange(8.0).reshape(2, 4)
        link = self.link()
        self.assertEqual(link.call(mixed, rows, timeout=WATCHDOG), mixed(rows))
        with self.assertRaisesRegex(KeyError, "deep"):
            link.call(mixed, rows[:, :3].copy(), timeout=WATCHDOG)

    def test_what_a_function_raises_is_raised_here(self):
        link, rows = self.link(), np.eye(2, dtype="f4")
        line = inspect.getsourcelines(nearest.__wrapped__)[1] + 4
        for raised in (
            lambda: link.call(nearest, rows, rows[0, :0], timeout=WATCHDOG),
            lambda: link.inject(nearest, rows, rows[0, :0]).wait(WATCHDOG),
        ):
            with self.assertRaises(ValueError) as caught:
                raised()
            self.assertEqual(caught.exception.args, ("the query is empty", 3))
            self.assertIsInstance(caught.exception.__cause__, farjump.Panicked)
            self.assertRegex(caught.exception.__notes__[0], rf"by `nearest` \(.*test_ifunc.py, line {line}\)")

        async def main():
            with self.assertRaises(Empty):
                await link.inject(nearest, rows[:0], rows[0])

        asyncio.run(main())
        self.assertEqual(link.call(nearest, rows, rows[1], timeout=WATCHDOG), 1)

    def test_what_numba_raises_has_the_line_that_raises_it(self):
        def checked(n, a):
            item = a[n]
            least = a[np.argmin(a[n:])]
            return (
                item
                + least / (n - 1)
                + item / n
            )

        link, function = self.link(), farjump.ifunc("i8, f8[::1] -> f8", boundscheck=True)(checked)
        first = inspect.getsourcelines(checked)[1]
        self.assertEqual(link.call(function, 2, np.ones(3), timeout=WATCHDOG), 2.5)
        for n, kind, line in ((0, ZeroDivisionError, 6), (1, ZeroDivisionError, 5), (3, IndexError, 1)):
            with self.subTest(n), self.assertRaises(kind) as caught:
                link.call(function, n, np.ones(3), timeout=WATCHDOG)
            self.assertEqual(caught.exception.__notes__, [f"raised at the target, by `checked` ({__file__}, line {first + line})"])
        empty = farjump.ifunc("f8[::1] -> i8")(lambda a: np.argmin(a))
        with self.assertRaises(ValueError) as caught:
            link.call(empty, np.ones(0), timeout=WATCHDOG)
        self.assertRegex(caught.exception.__notes__[0], rf"`<lambda>` \({__file__}; in `\w+`, .*/numba/.*\.py, line [1-9]\d+\)$")

    def test_functions_of_libm_are_the_targets(self):
        power = farjump.ifunc("f8, f8 -> f8")(lambda x, y: math.exp(x) + math.sin(y))
        with self.assertRaisesRegex(farjump.Refused, r"`exp`.*serve --export-library libm.so.6`, or farjump.Target\(") as caught:
            self.link().call(power, 0.0, 0.0, timeout=WATCHDOG)
        self.assertEqual((caught.exception.ifunc, caught.exception.cause), ("_lambda_", "unresolved import"))
        with farjump.Target(f"unix:{self.folder.name}/libm", export_library=["libm.so.6"]) as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(target.address) as link:
                self.assertEqual(link.call(power, 1.0, 0.5, timeout=WATCHDOG), math.exp(1.0) + math.sin(0.5))
        serving.join()

    def test_a_target_has_a_function_as_one_of_its_own(self):
        address, rows = f"unix:{self.folder.name}/local", np.eye(3, dtype="f4")
        with farjump.Target(address, local=[nearest.library]) as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with farjump.Link(address, mode="local") as link:
                self.assertEqual(link.call(nearest, rows, rows[2], timeout=WATCHDOG), 2)
                self.assertEqual(link.stats.code_bytes, 0)
        serving.join()

    def test_images_for_levels_of_cpus_are_in_one_library(self):
        summed = farjump.ifunc("f8[::1] -> f8", levels=("v3", "v2"), fastmath=True, name="summed")(lambda a: a.sum())
        self.assertEqual((len(set(summed.library.identity)), summed.library.name), (3, "summed"))
        self.assertEqual(self.link().call(summed, np.arange(100.0), timeout=WATCHDOG), 4950.0)
        with self.assertRaisesRegex(ValueError, "v9"):
            farjump.ifunc("f8 -> f8", levels=["v9"])

    def test_threads_compile_and_call_one_function(self):
        link, found = self.link(), []
        fresh = [farjump.ifunc("f8[::1], i8 -> f8")(lambda a, n: a[n] + 1) for _ in range(3)]
        begin = threading.Barrier(8)

        def work(number):
            begin.wait()
            for one in fresh:
                found.append((one.library, link.call(one, np.arange(10.0), number, timeout=WATCHDOG) - number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([result for _, result in found], [1.0] * 24)
        self.assertEqual(len({id(library) for library, _ in found}), 3)

    def test_the_same_source_has_the_same_code_in_each_process(self):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import test_ifunc\nprint(test_ifunc.nearest.library.identity)"
        )
        child = python(script, os.path.dirname(os.path.abspath(__file__)))
        self.assertIn(str(nearest.library.identity), self.ends(child))

    def test_a_function_is_pickled_by_its_name(self):
        self.assertIs(pickle.loads(pickle.dumps(nearest)), nearest)
        self.assertIs(copy.deepcopy([nearest])[0], nearest)

    def test_a_function_that_another_process_cannot_find_is_not_pickled(self):
        local = farjump.ifunc("f8 -> f8")(lambda x: x)
        for dumps in (pickle.dumps, cloudpickle.dumps):
            with self.assertRaisesRegex(farjump.PicklingError, "`.*<lambda>` cannot be pickled: .* top level of the module"):
                dumps(local)
        script = (
            "import farjump, multiprocessing, pickle\n"
            "from concurrent.futures import ProcessPoolExecutor\n"
            "from numba import cloudpickle\n"
            "@farjump.ifunc('f8 -> f8')\ndef total(x):\n    return x\n"
            "def task():\n    return total\n"
            "for dumps, one in ((pickle.dumps, total), (cloudpickle.dumps, total), (cloudpickle.dumps, task)):\n"
            "    try:\n        dumps(one)\n    except pickle.PicklingError as error:\n        print(repr(error))\n"
            "with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as pool:\n"
            "    print(pool.submit(repr, total).result(10), pool.submit(task).result(10) is total)\n"
        )
        output = self.ends(python(script)).splitlines()
        refusal = r"PicklingError\(.`total` cannot be pickled: it is defined in the main script .*Define it in a module"
        for line in output[:3]:
            self.assertRegex(line, refusal)
        self.assertEqual(output[3:], ["<farjump.Ifunc total of 'f8 -> f8'> True"])

    def test_buffers_are_released_after_a_call(self):
        buffer = bytearray(4 * 3)
        link = self.link()
        self.assertEqual(link.call(nearest, np.zeros((1, 3), "f4"), memoryview(buffer).cast("f"), timeout=WATCHDOG), 0)
        gc.collect()
        buffer.extend(b"longer")


class Arguments(WithTarget):
    def refused(self, error, words, function, *args):
        with self.assertRaisesRegex(error, words):
            self.link().call(function, *args, timeout=WATCHDOG)

    def test_arguments_that_the_signature_does_not_have_are_named(self):
        rows = np.eye(3, dtype="f4")
        self.refused(TypeError, "takes 2 arguments.* there are 1", nearest, rows)
        self.refused(TypeError, r"`query` of `nearest` is an array of f8.*astype\('f4'\)", nearest, rows, np.ones(3))
        self.refused(TypeError, "`query` of `nearest` is an array of >f4", nearest, rows, rows[0].astype(">f4"))
        self.refused(TypeError, "`rows` of `nearest` has 1 dimensions", nearest, rows[0], rows[0])
        self.refused(ValueError, "`rows` of `nearest` is not C-contiguous", nearest, rows.T[:, :2], rows[0])
        self.refused(TypeError, "`rows` of `nearest` is of type list", nearest, [1.0], rows[0])
        self.refused(TypeError, "`query` of `nearest` is of type str", nearest, rows, "text")
        self.refused(TypeError, "an array of O", nearest, rows, np.array([None]))

    def test_numbers_that_a_type_cannot_hold_are_named(self):
        some = farjump.ifunc("i1, f4, b1, c8 -> none")(lambda first, second, third, fourth: None)
        good = (1, 2.0, True, 1j)
        self.assertIsNone(self.link().call(some, *good, timeout=WATCHDOG))
        for position, name, value, error in (
            (0, "first", 128, OverflowError),
            (0, "first", 2**70, OverflowError),
            (0, "first", 1.5, TypeError),
            (0, "first", None, TypeError),
            (1, "second", 1e300, OverflowError),
            (1, "second", 10**400, OverflowError),
            (1, "second", "1.5", TypeError),
            (1, "second", 1j, TypeError),
            (2, "third", 1, TypeError),
            (3, "fourth", 1e300, OverflowError),
            (3, "fourth", "1j", TypeError),
        ):
            with self.subTest(name=name, value=value):
                self.refused(error, f"`{name}` of `<lambda>`", some, *good[:position], value, *good[position + 1 :])

    def test_other_things_than_functions_are_refused(self):
        with self.assertRaisesRegex(TypeError, "a function cannot be injected: .*@farjump.ifunc"):
            self.link().call(lambda: 1)
        with self.assertRaisesRegex(TypeError, "cannot be injected"):
            farjump.ifunc("f8 -> f8")(len)
        with self.assertRaisesRegex(TypeError, "`more` in another way"):
            farjump.ifunc("f8 -> f8")(lambda *more: 1)
        with self.assertRaisesRegex(TypeError, "one argument, its bytes, and there are 2"):
            self.link().call(nearest.library, b"", 1)
        # These are no payloads of a Python function.
        for payload in (b"", bytes(200), b"FJP1\x02\0\0\0" + bytes(64)):
            with self.assertRaisesRegex(farjump.Panicked, "ended with code 10001"):
                self.link().call(nearest.library, payload, timeout=WATCHDOG)

    def test_signatures_that_say_nothing_are_refused(self):
        for signature, words in (
            ("f4", "has no result"),
            ("f4 ->", "has no result"),
            ("f4, f4 -> f4", "has 1 arguments, and the signature .* has 2"),
            ("f4[:] -> i8", r"may have gaps.* write f4\[::1\]"),
            ("f4[:, :] -> i8", r"write f4\[:, ::1\]"),
            ("f4[ -> i8", "is no type"),
            ("q -> i8", "`q` .* is no type of numbers: there are b1"),
            ("f4 -> f4[::1]", "has an array as its result.*`out f4"),
            ("f4 -> ()", "has no result"),
            ("out f4 -> none", "is no array"),
            ("out f4[::1] -> f4", "the result is none"),
            ("f4[:, :, :, :, :, :, :, :, :, :, :, :, :, :, :, ::1] -> f4", "more than 15"),
        ):
            with self.subTest(signature), self.assertRaisesRegex(ValueError, words):
                farjump.ifunc(signature)(lambda a: a)


class Refusals(unittest.TestCase):
    """Functions that need a runtime which no target has."""

    def refused(self, function, missing, words, offset=1):
        line = inspect.getsourcelines(function)[1] + offset
        with self.assertRaisesRegex(farjump.IfuncError, words) as caught:
            farjump.ifunc("f8[::1] -> f8")(function).library
        self.assertEqual(caught.exception.line, line, str(caught.exception))
        self.assertIn(f"`{function.__name__}` ({__file__}, line {line})", str(caught.exception))
        if missing is None:
            self.assertIsNone(caught.exception.missing)
        else:
            self.assertRegex(caught.exception.missing, missing)
            self.assertIn(f"`{caught.exception.missing}`", str(caught.exception))

    def test_what_allocates_memory(self):
        def zeros(a):
            n = 3
            return np.zeros(n)[0]

        def expression(a):
            return ((a - 1) ** 2).sum()

        def a_list(a):
            some = [a[0]]
            some.append(1.0)
            return some[0]

        def text(a):
            return len(str(int(a[0]))) + 0.5

        def raises(a):
            if a[0] > 1:
                raise ValueError(a[0])
            return 1.0

        def called(a):
            return made(int(a[0]))

        self.refused(raises, "PyErr_SetString", "raise with constants alone", 2)
        for function, offset in ((zeros, 2), (expression, 1), (a_list, 1), (text, 1), (called, 1)):
            with self.subTest(function.__name__):
                self.refused(function, "NRT_", "allocates memory", offset)
        self.assertEqual(made(3), 0.0, "it works here as before")

    def test_what_uses_pythons_objects_or_numbas_library(self):
        def prints(a):
            x = a[0]
            print(x)
            return x

        def draws(a):
            return np.random.random()

        def objects(a):
            with numba.objmode(y="float64"):
                y = 1.0
            return y

        def gamma(a):
            return math.gamma(a[0])

        def reshaped(a):
            return a.reshape(2, 2)[0, 0]

        def largest(a):
            first = a[0]
            return first + np.max(a)

        def running(a):
            return np.cumsum(a)[1]

        def dot(a):
            first = a[0]
            return first + np.dot(a, a)

        self.refused(prints, "numba_gil_ensure", "objects of Python's", 2)
        self.refused(draws, "numba_rnd|numba_get", "random numbers")
        self.refused(objects, "numba_gil_ensure", "objects of Python's")
        self.refused(gamma, "numba_gamma", "a helper of Numba's runtime for mathematics")
        self.refused(reshaped, "numba_attempt_nocopy_reshape", "a helper of Numba's runtime for .*`reshape`")
        self.refused(largest, "numba_attempt_nocopy_reshape", "a helper of Numba's runtime for `np.max`, `np.min`", 2)
        self.refused(running, "NRT_", "allocates memory: make no arrays .as `np.cumsum")
        # Numba supports BLAS only with SciPy.
        has_scipy = importlib.util.find_spec("scipy") is not None
        self.refused(dot, "numba_xxdot" if has_scipy else None, "calls BLAS for `np.dot`", 2)

    def test_what_has_addresses_of_this_process(self):
        labs = ctypes.CDLL(None).labs
        labs.argtypes, labs.restype = [ctypes.c_long], ctypes.c_long

        def foreign(a):
            return labs(3) * 1.0

        def large(a):
            n = int(a[0])
            return LARGE[n]

        self.refused(foreign, None, "address of this process")
        self.refused(large, None, "address of this process", 2)

    def test_a_recursion_through_functions_with_other_options(self):
        # Numba finds them by their names in the module.
        global _first, _second
        _first = farjump.ifunc("i8 -> i8")(lambda n: n if n < 1 else _second(n - 1))
        _second = farjump.ifunc("i8 -> i8", fastmath=True)(lambda n: n if n < 1 else _first(n - 1))
        with self.assertRaisesRegex(farjump.IfuncError, "calls itself through a function that has other options"):
            _first.library

    def test_what_numba_does_not_compile_or_an_argument_forbids(self):
        def unknown(a):
            b = a
            return b.nothing

        def writes(a):
            a[0] = 1
            return 1.0

        self.refused(unknown, None, "(?s)cannot be compiled by Numba: .*Unknown attribute 'nothing'", 2)
        self.refused(writes, None, "writes into an argument, which is read only")


if __name__ == "__main__":
    unittest.main()
