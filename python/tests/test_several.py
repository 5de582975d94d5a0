"""Several calls as one: gather, map, and credit that is awaited."""

import asyncio
import signal
import threading
import unittest

import farjump
from support import WATCHDOG, WithTarget, library, milliseconds
from test_asyncio import run


def numbers(count):
    return [str(number).encode() for number in range(count)]


def large(count):
    """Returns arguments that soon fill the mailbox."""
    return [bytes([number % 256]) * 20_000 for number in range(count)]


class Several(WithTarget):
    # A mailbox for three large calls.
    SERVES = ("--mailbox-size", "64K")

    def test_replies_come_in_the_order_of_the_calls(self):
        link, echo = self.link(), library("echo")
        calls = link.map(echo, iter(numbers(2000)))
        self.assertEqual(len(calls), 2000)
        self.assertEqual(calls.wait(WATCHDOG), numbers(2000))
        self.assertEqual(list(calls), numbers(2000), "outcomes are kept")
        self.assertEqual(list(link.map(echo, numbers(50))), numbers(50))
        self.assertEqual(farjump.gather(link.inject(echo, one) for one in numbers(9)).wait(WATCHDOG), numbers(9))
        self.assertEqual(farjump.gather([]).wait(), [])

    def test_more_calls_than_a_link_has_places_for_are_mapped(self):
        link, echo = self.link(), library("echo")
        count = 40_000
        self.assertEqual(len(link.map(echo, [b""] * count).wait(WATCHDOG)), count)
        self.assertEqual(len(run(awaited(lambda: link.map(echo, [b""] * count)))), count)

    def test_one_future_completes_with_all_replies_of_several_links(self):
        links, echo = (self.link(), self.link(), self.link()), library("echo")

        async def main():
            calls = [links[number % 3].inject(echo, one) for number, one in enumerate(numbers(999))]
            both = farjump.gather(calls)
            return await both, await both, await farjump.gather([])

        self.assertEqual(run(main()), (numbers(999), numbers(999), []))

    def test_the_first_failure_is_raised_and_the_others_go_on(self):
        link, slow, panics = self.link(), library("slow"), library("panics")

        async def main():
            fails, late = link.inject(panics, b"oh"), link.inject(slow, milliseconds(300))
            with self.assertRaisesRegex(farjump.Panicked, "oh"):
                await farjump.gather([late, fails])
            self.assertIsNone(late.poll(), "it did not wait for the others")
            with self.assertRaisesRegex(farjump.Panicked, "oh"):
                await link.map(panics, [b"oh", b"no"])
            return await late

        self.assertEqual(run(main()), milliseconds(300))
        with self.assertRaises(farjump.Panicked):
            link.map(panics, [b""]).wait(WATCHDOG)

    def test_calls_of_other_links_go_on_after_a_failure(self):
        link, other, slow, panics = self.link(), self.link(), library("slow"), library("panics")

        async def main():
            fails = link.inject(panics, b"oh")
            late = [other.inject(slow, milliseconds(50)) for _ in range(6)]
            with self.assertRaises(farjump.Panicked):
                await farjump.gather([fails, *late])
            # Longer than the time after which calls of cancelled tasks are dropped.
            await asyncio.sleep(0.1)
            return await farjump.gather(late)

        self.assertEqual(run(main()), [milliseconds(50)] * 6)

    def test_exceptions_are_returned_where_that_is_wanted(self):
        link, echo, panics = self.link(), library("echo"), library("panics")

        def calls():
            sent = [link.inject(echo, b"1"), link.inject(panics, b"oh"), link.inject(echo, b"3")]
            return farjump.gather(sent, return_exceptions=True)

        cancelled = link.inject(echo, b"")
        cancelled.cancel()
        for first, second, third in (run(awaited(calls)), calls().wait(WATCHDOG), list(calls())):
            self.assertEqual((first, third), (b"1", b"3"))
            self.assertIsInstance(second, farjump.Panicked)
        (only,) = run(awaited(lambda: link.map(panics, [b"oh"], return_exceptions=True)))
        self.assertIsInstance(only, farjump.Panicked)
        (only,) = farjump.gather([cancelled], return_exceptions=True).wait()
        self.assertIsInstance(only, farjump.Cancelled)

    def test_iterating_goes_on_after_a_failure(self):
        link, echo, panics = self.link(), library("echo"), library("panics")
        replies = iter(farjump.gather([link.inject(panics, b"oh"), link.inject(echo, b"after")]))
        with self.assertRaises(farjump.Panicked):
            next(replies)
        self.assertEqual(next(replies), b"after")
        self.assertRaises(StopIteration, next, replies)

    def test_a_full_mailbox_does_not_hold_up_the_event_loop(self):
        link, echo, slow = self.link(), library("echo"), library("slow")

        async def main():
            blocker = link.inject(slow, milliseconds(600))
            calls = link.map(echo, large(50))
            self.assertIsNone(blocker.poll(), "map returned before there was credit")
            sending = asyncio.ensure_future(link.inject_async(echo, large(1)[0]))
            turns = 0
            while blocker.poll() is None:
                await asyncio.sleep(0.001)
                turns += 1
            self.assertGreater(turns, 5)
            self.assertEqual(await calls, large(50))
            return await (await sending)

        self.assertEqual(run(main()), large(1)[0])

    def test_credit_is_awaited_in_turn(self):
        link, echo = self.link(), library("echo")

        async def main():
            changing = bytearray(20_000)
            pending = []
            for number in range(50):
                changing[:] = bytes([number]) * 20_000
                pending.append(link.inject_async(echo, changing))
            calls = [await one for one in pending]
            return await farjump.gather(calls)

        self.assertEqual(run(main()), large(50))

    def test_calls_that_wait_for_credit_are_waited_for_without_a_loop(self):
        link, echo = self.link(), library("echo")

        async def main():
            return link.map(echo, large(20)), list(link.map(echo, large(20)))

        calls, replies = run(main())
        self.assertEqual(replies, large(20))
        self.assertEqual(calls.wait(WATCHDOG), large(20))

    def test_credit_that_never_comes_times_out(self):
        link, echo, slow = self.link(send_timeout=0.1), library("echo"), library("slow")

        async def main():
            blocker = link.inject(slow, milliseconds(1500))
            calls = link.map(echo, large(50))
            with self.assertRaisesRegex(farjump.TimedOut, "credit"):
                await link.inject_async(echo, large(1)[0])
            with self.assertRaisesRegex(farjump.TimedOut, "credit"):
                await calls
            return await blocker

        self.assertEqual(run(main()), milliseconds(1500))

    def test_calls_of_a_cancelled_task_are_not_sent(self):
        link, echo, slow = self.link(), library("echo"), library("slow")

        async def main():
            blocker = link.inject(slow, milliseconds(500))
            calls = link.map(echo, large(50))
            for awaited in (calls, link.inject_async(echo, large(1)[0])):
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(awaited, 0.02)
            await blocker
            # A look after the time for cancelled futures.
            await asyncio.sleep(0.1)
            return await link.inject(echo, b"after")

        self.assertEqual(run(main()), b"after")
        self.assertLess(link.stats.frames, 20)

    def test_a_cancelled_group_has_no_outcome(self):
        link = self.link()
        calls = link.map(library("slow"), [milliseconds(30)] * 3)
        self.assertTrue(calls.cancel())
        self.assertFalse(calls.cancel())
        for use in (calls.wait, lambda: run(awaited(lambda: calls))):
            with self.assertRaises(farjump.Cancelled):
                use()

    def test_a_timeout_leaves_the_calls_pending(self):
        calls = self.link().map(library("slow"), [milliseconds(60)] * 3)
        with self.assertRaisesRegex(farjump.TimedOut, "timed out after 10ms"):
            calls.wait(0.01)
        self.assertEqual(calls.wait(WATCHDOG), [milliseconds(60)] * 3)

    def test_closing_ends_what_is_gathered(self):
        link, echo = farjump.Link(self.address), library("echo")

        async def main():
            calls = link.map(library("slow"), [milliseconds(300)] * 2)
            unsent = link.map(echo, large(20))
            sending = link.inject_async(echo, large(1)[0])
            asyncio.get_running_loop().call_later(0.05, link.close)
            for awaited in (calls, unsent, sending):
                with self.assertRaises(farjump.Closed):
                    await awaited

        run(main())
        with self.assertRaises(farjump.Closed):
            link.map(echo, [b""])

    def test_threads_take_the_replies_of_one_group(self):
        link, echo, wrong = self.link(), library("echo"), []
        calls = link.map(echo, numbers(3000))

        def takes():
            if calls.wait(WATCHDOG) != numbers(3000):
                wrong.append(True)

        threads = [threading.Thread(target=takes) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_wrong_arguments_are_named(self):
        link, echo = self.link(), library("echo")
        with self.assertRaisesRegex(TypeError, r"pendings\[1\] is of type bytes"):
            farjump.gather([link.inject(echo, b""), b""])
        with self.assertRaises(TypeError):
            farjump.gather(link.inject(echo, b""))
        with self.assertRaisesRegex(TypeError, "args is of type int"):
            link.map(echo, [b"", 1])
        with self.assertRaises(TypeError):
            link.map(echo, 5)
        with self.assertRaisesRegex(RuntimeError, "no running event loop"):
            link.inject_async(echo, b"")

    def test_ctrl_c_leaves_calls_that_were_not_sent_unsent(self):
        link, echo, slow = self.link(), library("echo"), library("slow")

        async def main():
            link.send(slow, milliseconds(800))
            return link.map(echo, large(20))

        calls = run(main())
        before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with self.assertRaises(KeyboardInterrupt):
                calls.wait(WATCHDOG)
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(calls.wait(WATCHDOG), large(20))


async def awaited(calls):
    return await calls()


def interrupt():
    raise KeyboardInterrupt


if __name__ == "__main__":
    unittest.main()
