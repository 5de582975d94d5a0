"""Finalisers that use a call or a link while the interpreter itself works on it."""

import unittest

from support import WithTarget, python

# The collector runs after each new object, and with it a finaliser that calls `use`.
COLLECTS = """
import gc, sys, farjump
from support import library

class Garbage:
    ran = 0
    def __init__(self):
        self.itself = self
    def __del__(self):
        Garbage.ran += 1
        try:
            use()
        except farjump.Error:
            pass

def attempt(what, turns=200):
    for _ in range(turns):
        Garbage()
        try:
            what()
        except farjump.Error:
            pass

link = farjump.Link(sys.argv[1])
"""


class Finalisers(WithTarget):
    def check(self, script):
        """Runs a script. Its watchdog would end it if a thread waited for itself."""
        child = python(COLLECTS + script + "\nprint('ran', Garbage.ran)", self.address)
        ran = int(self.ends(child).split("ran ")[1])
        self.assertGreaterEqual(ran, 100, "the finaliser ran while outcomes were made")

    def test_a_finaliser_uses_a_call_while_its_outcome_is_made_again(self):
        for outcome in ["pending.cancel()", "pending.wait(10)", "link.close()"]:
            with self.subTest(outcome):
                self.check(
                    "pending = link.inject(library('echo'), b'x')\n"
                    f"{outcome}\n"
                    "def use():\n"
                    "    repr(pending), pending.poll()\n"
                    "gc.set_threshold(1, 1, 1)\n"
                    "attempt(pending.wait)\n"
                    "attempt(pending.poll)\n"
                    "attempt(lambda: pending.__await__())\n"
                )

    def test_a_finaliser_uses_the_link_during_calls_and_their_outcomes(self):
        self.check(
            "def use():\n"
            "    link.inject(library('echo'), b'y').cancel(), link.stats, link.closed\n"
            "gc.set_threshold(1, 1, 1)\n"
            "attempt(lambda: link.call(library('echo'), b'x', timeout=10))\n"
            "attempt(lambda: link.map(library('echo'), [b'x'] * 3).wait(10), 50)\n"
        )

    def test_a_finaliser_uses_an_event_loop_in_which_calls_are_awaited(self):
        self.check(
            "import asyncio\n"
            "async def main():\n"
            "    global use\n"
            "    def use():\n"
            "        asyncio.ensure_future(one())\n"
            "    async def one():\n"
            "        return await link.inject(library('echo'), b'y')\n"
            "    gc.set_threshold(1, 1, 1)\n"
            "    for _ in range(200):\n"
            "        Garbage()\n"
            "        assert await link.inject(library('echo'), b'x') == b'x'\n"
            "    assert await link.map(library('echo'), [b'x'] * 500) == [b'x'] * 500\n"
            "    gc.set_threshold(700, 10, 10)\n"
            # After the loop's end no finaliser could use it.
            "    gc.collect()\n"
            "asyncio.run(main())\n"
        )

    def test_arguments_of_unsent_calls_are_dropped_without_the_lock(self):
        child = python(
            "import asyncio, sys, threading\n"
            "import farjump\n"
            "from support import library\n"
            "calls = None\n"
            "class Argument(bytes):\n"
            "    dropped = 0\n"
            "    def __del__(self):\n"
            "        Argument.dropped += 1\n"
            "        if calls is not None:\n"
            "            calls.cancel(), len(calls), calls.cancel()\n"
            "target = farjump.Target('unix:@farjump-finalisers-%s' % __import__('os').getpid())\n"
            "serving = threading.Thread(target=target.run, args=(1,))\n"
            "serving.start()\n"
            "link = farjump.Link(target.address)\n"
            "serving.join()\n"
            "async def main():\n"
            "    global calls\n"
            "    # Nobody serves: most of these find no credit.\n"
            "    calls = link.map(library('echo'), [Argument(4096) for _ in range(2000)])\n"
            "    before = Argument.dropped\n"
            "    assert calls.cancel()\n"
            "    print('dropped', Argument.dropped - before)\n"
            "asyncio.run(main())\n"
        )
        dropped = int(self.ends(child).split("dropped ")[1])
        self.assertGreater(dropped, 100)


if __name__ == "__main__":
    unittest.main()
