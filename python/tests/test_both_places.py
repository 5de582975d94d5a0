"""One list of functions, run at a target and here: values, types, exceptions and refusals are alike."""

import tempfile
import threading
import unittest

import farjump
from support import WATCHDOG

try:
    import numpy as np
except ImportError as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")


def divisions(which, a, b, c, d):
    if which == 0:
        return a // b + 0.0
    if which == 1:
        return a % b + 0.0
    if which == 2:
        return a / b
    if which == 3:
        return c / d
    if which == 4:
        return c // d
    return c % d


divided = farjump.ifunc("i8, i8, i8, f8, f8 -> f8")(divisions)
divided_as_numpy = farjump.ifunc("i8, i8, i8, f8, f8 -> f8", error_model="numpy", name="as_numpy")(divisions)


@farjump.ifunc("i8 -> i8")
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def triangular(n):
    return n if n < 2 else n + triangular(n - 1)


by_its_own_name = farjump.ifunc("i8 -> i8")(triangular)


@farjump.ifunc("i8 -> b1")
def is_even(n):
    return True if n == 0 else is_odd(n - 1)


@farjump.ifunc("i8 -> b1")
def is_odd(n):
    if n < 0:
        raise ValueError("a negative number")
    return False if n == 0 else is_even(n - 1)


@farjump.ifunc("f8[::1], i8 -> (f8, i8)", boundscheck=True)
def summed(values, n):
    total = values[n]
    for value in values:
        total += value
    return total, fibonacci(n)


class Units(np.ndarray):
    """A user's class of arrays."""


PLAIN = np.arange(4.0)
NUMBERS = [(which, a, b, float(a), float(b)) for which in range(6) for a, b in ((7, 2), (-7, 2), (7, 0), (-7, 0), (0, 0))]
CASES = (
    *((divided, args) for args in NUMBERS),
    *((divided_as_numpy, args) for args in NUMBERS),
    *((fibonacci, (n,)) for n in (0, 1, 15)),
    (by_its_own_name, (9,)),
    *((is_even, (n,)) for n in (0, 7, -1)),
    *((summed, (PLAIN, n)) for n in (0, 3, 4)),
    (summed, (np.array([]), 0)),
)
REFUSED = (
    np.ma.array(PLAIN, mask=[0, 1, 0, 0]),
    np.ma.array(PLAIN),
    np.matrix(PLAIN),
    PLAIN.view(Units),
    PLAIN.view(np.recarray),
)


def outcome(run, *args):
    """Returns the result with its types, or the exception."""
    try:
        result = run(*args)
    except Exception as error:
        return type(error), error.args
    # Not a number is not equal to itself.
    return type(result), repr(result)


class BothPlaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="farjump-python-")
        cls.target = farjump.Target(f"unix:{cls.folder.name}/owner", objects="1M", export_library=["libm.so.6"])
        cls.serving = threading.Thread(target=cls.target.run)
        cls.serving.start()
        cls.owner = farjump.Link(cls.target.address)
        cls.store = farjump.Store(cls.target.address)

    @classmethod
    def tearDownClass(cls):
        cls.store.close()
        cls.owner.close()
        cls.target.close()
        cls.serving.join()
        cls.folder.cleanup()

    def there(self, function, *args):
        return self.owner.call(function, *args, timeout=WATCHDOG)

    def test_each_function_has_one_outcome_at_a_target_and_here(self):
        kinds = set()
        for function, args in CASES:
            with self.subTest(function=function.name, args=args):
                there = outcome(self.there, function, *args)
                self.assertEqual(there, outcome(function, *args))
                kinds.add(there[0])
                if isinstance(args[0], np.ndarray):
                    handle, more = farjump.put_array(self.store, args[0]), args[1:]
                    for place in ("owner", "here", "auto"):
                        self.assertEqual(outcome(lambda: farjump.at(handle, function, *more, place=place)), there, place)
        self.assertEqual(kinds, {float, int, bool, tuple, ZeroDivisionError, ValueError, IndexError})

    def test_division_by_zero_is_an_error_unless_numpys_rule_is_chosen(self):
        for which in range(6):
            with self.subTest(which), self.assertRaises(ZeroDivisionError):
                self.there(divided, which, 7, 0, 7.0, 0.0)
            self.assertIsInstance(self.there(divided_as_numpy, which, 7, 0, 7.0, 0.0), float)

    def test_arguments_are_those_of_the_signature_at_either_place(self):
        handle = farjump.put_array(self.store, PLAIN)
        for args, words in (
            ((1.5,), "`n` of `summed` is of type float, and the signature says i8"),
            ((2**63,), "`n` of `summed` is 9223372036854775808, which i8 cannot hold"),
            ((), "`summed` takes 2 arguments .*, and there are 1"),
        ):
            found = [outcome(lambda: farjump.at(handle, summed, *args, place=place)) for place in ("owner", "here", "auto")]
            self.assertRegex(str(found[0][1][0]), words)
            self.assertEqual(found[1:], found[:1] * 2)

    def test_arrays_of_other_classes_are_refused_by_name_at_either_place(self):
        for array in REFUSED:
            name = f"{type(array).__module__}.{type(array).__qualname__}"
            with self.subTest(name):
                there = outcome(self.there, summed, array, 0)
                self.assertEqual(there[0], TypeError)
                self.assertIn(f"argument `values` of `summed` is a {name}, and farjump takes", there[1][0])
                self.assertEqual(there, outcome(summed, array, 0))
                with self.assertRaisesRegex(TypeError, f"farjump.put_array is a {name}"):
                    farjump.put_array(self.store, array)
        # Bytes have no dimensions that would reveal the loss of a mask.
        masked = np.ma.array(np.array([1, 2, 100], "u1"), mask=[0, 0, 1])
        of_bytes = farjump.ifunc("u1[::1] -> i8")(lambda a: a.sum())
        self.assertIn("MaskedArray", outcome(self.there, of_bytes, masked)[1][0])

    def test_a_mapped_file_is_an_array(self):
        path = f"{self.folder.name}/mapped"
        PLAIN.tofile(path)
        mapped = np.memmap(path, "f8", "r")
        self.assertEqual(self.there(summed, mapped, 3), (9.0, 2))
        self.assertEqual(summed(mapped, 3), (9.0, 2))
        np.testing.assert_array_equal(farjump.get_array(self.store, farjump.put_array(self.store, mapped)), PLAIN)


if __name__ == "__main__":
    unittest.main()
