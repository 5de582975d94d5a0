"""Runs the tests of the package on this interpreter, and reports as Rust's test programs do.

Arguments: the folder of ifunc libraries, the program farjump, and filters for names; or `--in` and a folder of tests that
need neither. The tests import the installed package: this folder holds none.
"""

import faulthandler
import os
import sys
import time
import traceback
import unittest

# Each test has limits of its own, far below this.
LIMIT = 1200


class Result(unittest.TestResult):
    """A result that prints a line for each test, and at the end the output of failed ones."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.bad = []

    def addSuccess(self, test):
        self.passed += 1
        self.say(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, f"ignored, {reason}")

    def addError(self, test, error):
        self.bad.append((self.name(test), "".join(traceback.format_exception(*error))))
        self.say(test, "FAILED")

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        # A test of which a part failed has no other outcome.
        if error is not None:
            self.addError(subtest, error)

    @staticmethod
    def name(test):
        return test.id().replace(".", "::")

    def say(self, test, outcome):
        print(f"test {self.name(test)} ... {outcome}", flush=True)


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.argv[1] == "--in":
        # It replaces this folder, which has modules of the same names.
        sys.path[0] = folder = os.path.abspath(sys.argv[2])
    else:
        os.environ["TEST_LIBRARIES"], os.environ["TEST_PROGRAM"] = sys.argv[1:3]
    filters = sys.argv[3:]
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    found = unittest.defaultTestLoader.discover(folder)
    tests = [test for test in flat(found) if not filters or any(word in test.id() for word in filters)]
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    print(f"     Running python/tests (python/tests/{python})\n\nrunning {len(tests)} tests", flush=True)
    begun, result = time.monotonic(), Result()
    unittest.TestSuite(tests).run(result)
    took = time.monotonic() - begun
    if result.bad:
        print("\nfailures:\n")
        for name, output in result.bad:
            print(f"---- {name} stdout ----\n{output}")
        print("\nfailures:")
        for name, _ in result.bad:
            print(f"    {name}")
    word = "FAILED" if result.bad else "ok"
    print(
        f"\ntest result: {word}. {result.passed} passed; {len(result.bad)} failed; {len(result.skipped)} ignored; "
        f"0 measured; 0 filtered out; finished in {took:.2f}s",
        flush=True,
    )
    return 1 if result.bad else 0


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


if __name__ == "__main__":
    sys.exit(main())
