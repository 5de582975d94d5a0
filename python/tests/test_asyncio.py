"""Awaiting calls in asyncio."""

import asyncio
import threading
import unittest

import farjump
from support import WATCHDOG, WithTarget, library, milliseconds


def run(main):
    """Runs a coroutine, for as long as the watchdog lets it."""

    async def limited():
        return await asyncio.wait_for(main, WATCHDOG)

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

    def test_a_call_needs_a_running_loop_to_be_awaited(self):
        pending = self.link().inject(library("slow"), milliseconds(50))
        with self.assertRaisesRegex(RuntimeError, "no running event loop"):
            pending.__await__()


if __name__ == "__main__":
    unittest.main()
