"""Awaiting calls in asyncio."""

import asyncio
import gc
import threading
import unittest
import weakref

import farjump
from support import WATCHDOG, WithTarget, few_descriptors, kept, library, milliseconds


def run(main):
    """Runs a coroutine, for at most the watchdog's time."""

    async def limited():
        return await asyncio.wait_for(main, 3 * WATCHDOG)

    return asyncio.run(limited())


class Asyncio(WithTarget):
    def test_a_hundred_calls_are_awaited_in_turn(self):
        link, echo = self.link(), library("echo")

        async def main():
            pending = [link.inject(echo, str(number).encode()) for number in range(100)]
            return [await one for one in pending]

        self.assertEqual(run(main()), [str(number).encode() for number in range(100)])

    def test_many_calls_are_gathered(self):
        link, echo = self.link(), library("echo")

        async def main():
            return await asyncio.gather(*(link.inject(echo, str(number).encode()) for number in range(1000)))

        self.assertEqual(run(main()), [str(number).encode() for number in range(1000)])

    def test_the_loop_does_other_things_while_a_call_is_awaited(self):
        link, slow = self.link(), library("slow")

        async def main():
            turns = 0

            async def count():
                nonlocal turns
                while True:
                    await asyncio.sleep(0.001)
                    turns += 1

            counting = asyncio.create_task(count())
            await asyncio.gather(*(link.inject(slow, milliseconds(20)) for _ in range(5)))
            counting.cancel()
            return turns

        self.assertGreater(run(main()), 5)

    def test_errors_are_raised_where_the_call_is_awaited(self):
        link = self.link()

        async def main():
            slow = link.inject(library("slow"), milliseconds(20))
            results = await asyncio.gather(
                slow, link.inject(library("panics"), b"oh"), link.inject(library("missing"), b""),
                return_exceptions=True,
            )
            self.assertEqual(results[0], milliseconds(20))
            self.assertIsInstance(results[1], farjump.Panicked)
            self.assertIsInstance(results[2], farjump.Refused)

        run(main())

    def test_a_task_that_is_cancelled_leaves_the_link_in_order(self):
        link, slow, echo = self.link(), library("slow"), library("echo")

        async def main():
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(link.inject(slow, milliseconds(300)), 0.02)
            return await link.inject(echo, b"after")

        self.assertEqual(run(main()), b"after")

    def test_several_loops_share_a_link_with_threads_that_wait(self):
        link, slow, echo, wrong = self.link(), library("slow"), library("echo"), []

        async def main(name):
            for turn in range(20):
                args = f"{name} {turn}".encode()
                results = await asyncio.gather(link.inject(echo, args), link.inject(slow, milliseconds(1)))
                if results != [args, milliseconds(1)]:
                    wrong.append(results)

        def waits():
            for _ in range(20):
                if link.call(slow, milliseconds(1), timeout=WATCHDOG) != milliseconds(1):
                    wrong.append("waits")

        threads = [threading.Thread(target=lambda name=name: run(main(name))) for name in "ab"]
        threads += [threading.Thread(target=waits) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_closing_ends_what_is_awaited(self):
        link = farjump.Link(self.address)

        async def main():
            pending = link.inject(library("slow"), milliseconds(500))
            asyncio.get_running_loop().call_later(0.05, link.close)
            with self.assertRaises(farjump.Closed):
                await pending

        run(main())

    def many_loops(self, new_loop, loops=2000):
        """Runs loops one after the other, each with awaited calls, and with one whose task is cancelled at the end."""
        link, slow = self.link(), library("slow")

        async def awaits(call):
            return await call

        async def main():
            task = asyncio.create_task(awaits(link.inject(slow, milliseconds(0))))
            self.assertEqual(len(await farjump.gather([link.inject(slow, milliseconds(0)) for _ in range(2)])), 2)
            asyncio.get_running_loop().kept = asyncio.create_task(awaits(link.inject(slow, milliseconds(0))))
            await asyncio.sleep(0)

        def one():
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(main())

        one()
        before, most = kept()[0], 0
        with few_descriptors():
            for turn in range(loops):
                one()
                if turn % 20 == 0:
                    most = max(most, kept()[0])
        self.assertLessEqual(most, before + 40, "loops leave descriptors")
        self.assertEqual(link.call(library("echo"), b"later", timeout=WATCHDOG), b"later")

    def test_two_thousand_event_loops_leave_no_descriptors(self):
        self.many_loops(asyncio.new_event_loop)

    def test_two_thousand_event_loops_of_uvloop_leave_no_descriptors(self):
        try:
            import uvloop
        except ImportError as error:
            raise unittest.SkipTest(f"there is no uvloop ({error})")
        self.many_loops(uvloop.new_event_loop)

    def test_many_links_in_one_event_loop_leave_no_descriptors(self):
        slow = library("slow")

        async def awaits(call):
            return await call

        async def main():
            before, most = 0, 0
            for turn in range(100):
                link = farjump.Link(self.address)
                awaiting = asyncio.create_task(awaits(link.inject(slow, milliseconds(1))))
                # The outcome is there when the loop first looks, so no timer for another look is left.
                asyncio.get_running_loop().call_soon(threading.Event().wait, 0.005)
                await awaiting
                if turn % 2:
                    link.close()
                del link
                await asyncio.sleep(0)
                most = max(most, kept()[0])
                before = before or most
            self.assertLessEqual(most, before + 60)

        with few_descriptors():
            run(main())

    def test_an_event_loop_that_was_dropped_with_calls_is_collected(self):
        link, slow = self.link(), library("slow")

        async def awaits():
            await link.inject(slow, milliseconds(200))

        loop = asyncio.new_event_loop()
        task = loop.create_task(awaits())
        loop.run_until_complete(asyncio.sleep(0.02))
        task._log_destroy_pending = False
        before, collected = kept()[0], weakref.ref(loop)
        del loop, task
        gc.collect()
        self.assertIsNone(collected())
        self.assertLess(kept()[0], before)
        self.assertEqual(link.call(library("echo"), b"after", timeout=WATCHDOG), b"after")

    def test_calls_that_refer_to_themselves_are_collected(self):
        link, slow = self.link(), library("slow")

        class Mark:
            pass

        def by_their_exception():
            mark, pending = Mark(), link.inject(library("panics"), b"oh")
            try:
                pending.wait(WATCHDOG)
            except farjump.Panicked as error:
                # Its traceback has this frame, and so the call that keeps it.
                self.assertIn("oh", str(error))
            return weakref.ref(mark)

        def by_their_group():
            mark, pendings = Mark(), link.map(library("panics"), [b"oh", b"oh"])
            try:
                pendings.wait(WATCHDOG)
            except farjump.Panicked:
                pass
            replies = iter(pendings)
            try:
                next(replies)
            except farjump.Panicked:
                pass
            return weakref.ref(mark)

        def by_an_awaitable():
            mark, pendings = Mark(), link.map(library("echo"), [b"1"])
            pendings.wait(WATCHDOG)

            async def main():
                ready = pendings.__await__()
                try:
                    next(ready)
                except StopIteration as end:
                    # The awaitable has the same list.
                    end.value.extend((ready, mark))

            run(main())
            return weakref.ref(mark)

        for made in (by_their_exception, by_their_group, by_an_awaitable):
            with self.subTest(made.__name__):
                mark = made()
                gc.collect()
                self.assertIsNone(mark())

    def test_a_call_needs_a_running_loop_to_be_awaited(self):
        pending = self.link().inject(library("slow"), milliseconds(50))
        with self.assertRaisesRegex(RuntimeError, "no running event loop"):
            pending.__await__()


if __name__ == "__main__":
    unittest.main()
