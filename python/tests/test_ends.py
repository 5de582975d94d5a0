"""Forks, other methods of starting processes, and the end of the interpreter with calls in flight."""

import os
import textwrap
import unittest

from support import WithTarget, python

HEAD = """
import asyncio, atexit, multiprocessing, os, signal, subprocess, sys, threading
import farjump
from support import library, milliseconds
address = sys.argv[1]
"""

# Objects that a process made before its fork, and all uses of them.
MADE = """
echo, link = library("echo"), farjump.Link(address)
target = farjump.Target(address + "-own")
pending, pendings = link.inject(echo, b"parent"), link.map(echo, [b"1", b"2"])
replies = iter(pendings)
async def awaits(one):
    return await one
async def awaited(make):
    return await make()
uses = {
    "call": lambda: link.call(echo, b""), "inject": lambda: link.inject(echo, b""), "send": lambda: link.send(echo, b""),
    "map": lambda: link.map(echo, [b""]), "flush": link.flush, "close": link.close, "closed": lambda: link.closed,
    "peer": lambda: link.peer, "stats": lambda: link.stats, "with": link.__enter__().__exit__,
    "transport": lambda: link.transport, "inject_async": lambda: asyncio.run(awaited(lambda: link.inject_async(echo, b""))),
    "wait": pending.wait, "poll": pending.poll, "cancel": pending.cancel, "await": lambda: asyncio.run(awaits(pending)),
    "wait for all": pendings.wait, "cancel all": pendings.cancel, "iterate": lambda: list(pendings),
    "next": lambda: next(replies), "await all": lambda: asyncio.run(awaits(pendings)),
    "gather": lambda: farjump.gather([pending]), "target.poll": target.poll, "target.run": target.run,
    "target.stop": target.stop, "target.close": target.close, "target.stats": lambda: target.stats,
}
def tries():
    wrong = []
    for name, use in uses.items():
        try:
            use()
            wrong.append(name)
        except farjump.Forked as error:
            if "which forked this one: make another after the fork" not in str(error):
                wrong.append(f"{name}: {error}")
    return wrong
"""


class WithScripts(WithTarget):
    def ran(self, *parts):
        """Runs a script, checks its exit status and its output, and returns the output."""
        script = "".join(textwrap.dedent(part) for part in (HEAD, *parts))
        output = self.ends(python(script, self.address))
        for bad in ("Traceback", "Fatal", "panicked", "Segmentation"):
            self.assertNotIn(bad, output)
        return output

    def checks_children(self, transport):
        """Checks a link over this transport in a forked child, and in a parent that starts a program."""
        output = self.ran(
            MADE,
            """
            def child():
                print("wrong:", tries(), farjump.Link(address).call(echo, b"child", timeout=10), flush=True)
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            print(process.exitcode, link.transport, link.call(echo, b"still", timeout=10))
            # With a function for the child Python forks.
            subprocess.run(["true"], check=True, preexec_fn=lambda: None)
            print(link.call(echo, b"after a program", timeout=10))
            """,
        )
        self.assertIn("wrong: [] b'child'", output)
        self.assertIn(f"0 {transport} b'still'", output)
        self.assertIn("b'after a program'", output)


class OverTcp(WithScripts):
    SERVES = ("--transport", "tcp")

    def test_a_multiprocessing_child_raises_forked_and_programs_still_start(self):
        self.checks_children("tcp")


class Ends(WithScripts):
    def test_a_forked_child_raises_forked_and_can_make_its_own_link(self):
        output = self.ran(
            MADE,
            """
            pid = os.fork()
            if pid == 0:
                signal.alarm(15)
                wrong = tries()
                own = farjump.Link(address).call(echo, b"child", timeout=10)
                del uses, link, pending, pendings, replies, target
                print("wrong:", wrong, own, flush=True)
                sys.exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(status, pending.wait(10), pendings.wait(10), link.call(echo, b"still", timeout=10))
            target.close()
            """,
        )
        self.assertIn("wrong: [] b'child'", output)
        self.assertIn("0 b'parent' [b'1', b'2'] b'still'", output)
        self.assertFalse(os.path.exists(f"{self.folder.name}/target-own"))

    def test_a_multiprocessing_child_raises_forked_and_programs_still_start(self):
        self.checks_children("shm")

    def test_a_fork_beside_waiting_threads_and_a_loop_harms_neither(self):
        output = self.ran(
            MADE,
            """
            slow = library("slow")
            async def main():
                late = asyncio.gather(*(link.inject(slow, milliseconds(30)) for _ in range(5)))
                await asyncio.sleep(0.01)
                pid = os.fork()
                if pid == 0:
                    signal.alarm(15)
                    # The loop is the parent's: only what is new works.
                    own = farjump.Link(address).call(echo, b"child", timeout=10)
                    print("child", own, link_is_refused(), flush=True)
                    os._exit(0)
                replies = await late
                print(len(replies), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            def link_is_refused():
                try:
                    link.flush()
                except farjump.Forked:
                    return True
            def waits():
                for _ in range(20):
                    link.call(slow, milliseconds(2), timeout=10)
            threads = [threading.Thread(target=waits) for _ in range(3)]
            for thread in threads:
                thread.start()
            asyncio.run(main())
            for thread in threads:
                thread.join()
            """,
        )
        self.assertIn("child b'child' True", output)
        self.assertIn("5 0", output)

    def test_processes_that_are_spawned_make_their_own(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        path = os.path.join(self.folder.name, "spawned.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(
                f"""
                import sys
                sys.path.insert(0, {folder!r})
                {HEAD.strip().replace(chr(10), chr(10) + ' ' * 16)}
                def child(address):
                    print("child", farjump.Link(address).call(library("echo"), b"own", timeout=10), flush=True)
                if __name__ == "__main__":
                    signal.alarm(20)
                    link = farjump.Link(address)
                    for way in ("spawn", "forkserver"):
                        context = multiprocessing.get_context(way)
                        process = context.Process(target=child, args=(address,))
                        process.start()
                        process.join()
                        try:
                            context.Process(target=child, args=(link,)).start()
                        except TypeError as error:
                            print(way, process.exitcode, error)
                """
            ))
        child = python(f"import runpy, sys; sys.argv = ['', sys.argv[1]]; runpy.run_path({path!r}, run_name='__main__')", self.address)
        output = self.ends(child)
        self.assertEqual(output.count("child b'own'"), 2, output)
        for way in ("spawn", "forkserver"):
            self.assertIn(f"{way} 0 cannot pickle 'farjump.Link' object", output)

    def test_the_interpreter_ends_with_calls_in_flight(self):
        for ending in ("", "raise SystemExit(0)", "link.close()"):
            with self.subTest(ending):
                self.ran(
                    """
                    link, slow = farjump.Link(address), library("slow")
                    target = farjump.Target(address + "-ending")
                    pending = [link.inject(slow, milliseconds(50)) for _ in range(5)]
                    pendings = link.map(slow, [milliseconds(50)] * 3)
                    def waits(wait):
                        try:
                            wait()
                        except farjump.Closed:
                            pass
                    for wait in (pending[4].wait, pendings.wait, lambda: list(pendings), link.flush, target.run):
                        threading.Thread(target=waits, args=(wait,), daemon=True).start()
                    threading.Event().wait(0.02)
                    """,
                    ending,
                )
                self.assertFalse(os.path.exists(f"{self.folder.name}/target-ending"), "the socket is gone")

    def test_the_interpreter_waits_for_threads_that_wait(self):
        output = self.ran(
            """
            link, slow = farjump.Link(address), library("slow")
            for _ in range(3):
                threading.Thread(target=lambda: print(link.call(slow, milliseconds(30), timeout=10))).start()
            """
        )
        self.assertEqual(output.count("b'\\x1e\\x00'"), 3)

    def test_functions_for_the_end_may_call(self):
        output = self.ran(
            """
            link, echo = farjump.Link(address), library("echo")
            class Last:
                def __del__(self):
                    print("deleted", link.call(echo, b"", timeout=10), flush=True)
            atexit.register(lambda: print("at exit", link.map(echo, [b"1", b"2"]).wait(10), flush=True))
            atexit.register(lambda: print("at exit", asyncio.run(awaits()), flush=True))
            async def awaits():
                return await link.inject(echo, b"awaited")
            last = Last()
            atexit.register(globals().pop, "last")
            del last
            """
        )
        self.assertIn("at exit [b'1', b'2']", output)
        self.assertIn("at exit b'awaited'", output)
        self.assertIn("deleted b''", output)

    def test_an_event_loop_that_is_abandoned_ends_quietly(self):
        for ending in ("", "loop.close()", "link.close()", "del link, tasks, pendings", "sys.exit(0)"):
            with self.subTest(ending):
                self.ran(
                    """
                    import warnings
                    warnings.simplefilter("ignore")
                    link, slow = farjump.Link(address), library("slow")
                    loop = asyncio.new_event_loop()
                    async def awaits(one):
                        await one
                    async def begin():
                        pendings = link.map(slow, [milliseconds(50)] * 3)
                        tasks = [loop.create_task(awaits(link.inject(slow, milliseconds(50)))) for _ in range(3)]
                        tasks += [loop.create_task(awaits(pendings))]
                        await asyncio.sleep(0.01)
                        for task in tasks:
                            task._log_destroy_pending = False
                        return pendings, tasks
                    pendings, tasks = loop.run_until_complete(begin())
                    """,
                    ending,
                )

    def test_an_event_loop_in_a_daemon_thread_ends_quietly(self):
        self.ran(
            """
            link, slow = farjump.Link(address), library("slow")
            async def awaits():
                while True:
                    await farjump.gather([link.inject(slow, milliseconds(1)) for _ in range(5)])
            threading.Thread(target=lambda: asyncio.run(awaits()), daemon=True).start()
            threading.Event().wait(0.1)
            """
        )


if __name__ == "__main__":
    unittest.main()
