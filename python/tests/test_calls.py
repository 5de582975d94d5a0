"""Calls, their arguments, and their errors."""

import array
import ctypes
import gc
import pickle
import threading
import unittest
import weakref

import farjump
from support import WATCHDOG, WithTarget, library, milliseconds


class Calls(WithTarget):
    def test_a_call_gives_the_reply_as_bytes(self):
        self.assertEqual(self.link().call(library("echo"), b"hello", timeout=WATCHDOG), b"hello")

    def test_arguments_are_any_contiguous_bytes(self):
        link, echo = self.link(), library("echo")
        numbers = array.array("d", [1.0, 2.0])
        table = memoryview(bytes(12)).cast("B", (3, 4))
        few = (b"", b"12345678", bytearray(b"abc"), memoryview(b"abcdef")[1:4], ctypes.c_double(1.5))
        for args in (*few, numbers, table, (ctypes.c_int * 3)(1, 2, 3), bytes(100_000)):
            with self.subTest(type(args)):
                self.assertEqual(link.call(echo, args, timeout=WATCHDOG), bytes(args))

    def test_arguments_that_are_not_contiguous_bytes_are_refused(self):
        link, echo = self.link(), library("echo")
        with self.assertRaisesRegex(BufferError, "side by side"):
            link.call(echo, memoryview(b"abcdef")[::2])
        with self.assertRaisesRegex(TypeError, "args is of type str"):
            link.call(echo, "text")
        for reference in (ctypes.py_object("text"), (ctypes.py_object * 2)("one", "two")):
            with self.assertRaisesRegex(TypeError, "references to objects"):
                link.call(echo, reference)
        with self.assertRaises(TypeError):
            link.call("no library", b"")

    def test_a_buffer_is_released_after_the_call(self):
        args = bytearray(b"abc")
        self.link().call(library("echo"), args, timeout=WATCHDOG)
        args.extend(b"longer")

    def test_several_calls_are_pending_and_taken_in_any_order(self):
        link, echo = self.link(), library("echo")
        pending = [link.inject(echo, str(number).encode()) for number in range(300)]
        for number in reversed(range(300)):
            self.assertEqual(pending[number].wait(WATCHDOG), str(number).encode())
        self.assertEqual(pending[7].wait(), b"7")
        self.assertEqual(pending[7].poll(), b"7")

    def test_more_calls_than_the_mailbox_holds_wait_for_credit(self):
        link, echo = self.link(), library("echo")
        for _ in range(50):
            link.send(echo, bytes(60_000))
        link.flush(WATCHDOG)
        self.assertEqual(link.stats.frames, 50)

    def test_a_poll_does_not_wait(self):
        pending = self.link().inject(library("slow"), milliseconds(100))
        self.assertIsNone(pending.poll())
        self.assertEqual(pending.wait(WATCHDOG), milliseconds(100))

    def test_a_timeout_leaves_a_pending_call_pending(self):
        pending = self.link().inject(library("slow"), milliseconds(200))
        with self.assertRaisesRegex(farjump.TimedOut, "waiting for a reply from unix:.* timed out after 10ms"):
            pending.wait(0.01)
        self.assertEqual(pending.wait(WATCHDOG), milliseconds(200))

    def test_a_timeout_is_a_timeout_error_of_python(self):
        with self.assertRaises(TimeoutError):
            self.link().call(library("slow"), milliseconds(100), timeout=0.01)
        with self.assertRaises(ValueError):
            self.link().call(library("slow"), milliseconds(1), timeout=-1)

    def test_a_cancelled_call_has_no_outcome(self):
        pending = self.link().inject(library("slow"), milliseconds(20))
        self.assertTrue(pending.cancel())
        self.assertFalse(pending.cancel())
        with self.assertRaises(farjump.Cancelled):
            pending.wait()

    def test_a_link_shows_its_peer_transport_and_statistics(self):
        link = self.link(transport="shm", mode="always")
        link.call(library("echo"), b"12", timeout=WATCHDOG)
        self.assertEqual(link.peer.pid, self.serving.pid)
        self.assertEqual(link.transport, "shm")
        self.assertEqual((link.stats.frames, link.stats.frames_with_code, link.stats.payload_bytes), (1, 1, 2))

    def test_threads_share_a_link(self):
        link, echo, slow, wrong = self.link(), library("echo"), library("slow"), []

        def calls(number):
            for turn in range(200):
                args = f"{number} {turn}".encode()
                if link.call(echo, args, timeout=WATCHDOG) != args:
                    wrong.append(args)
            if link.call(slow, milliseconds(5), timeout=WATCHDOG) != milliseconds(5):
                wrong.append(number)

        threads = [threading.Thread(target=calls, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_several_threads_get_the_outcome_of_one_call(self):
        pending, found = self.link().inject(library("slow"), milliseconds(50)), []
        threads = [threading.Thread(target=lambda: found.append(pending.wait(WATCHDOG))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [milliseconds(50)] * 4)


class Errors(WithTarget):
    def test_a_panic_has_its_message(self):
        with self.assertRaisesRegex(farjump.Panicked, "`panics` panicked at the target: too bad") as caught:
            self.link().call(library("panics"), b"too bad", timeout=WATCHDOG)
        self.assertEqual((caught.exception.ifunc, caught.exception.message), ("panics", "too bad"))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), again.message), (str(caught.exception), "too bad"))

    def test_a_refusal_names_what_is_missing(self):
        link = self.link()
        with self.assertRaisesRegex(farjump.Refused, "no_such_function") as caught:
            link.call(library("missing"), b"", timeout=WATCHDOG)
        self.assertEqual(caught.exception.cause, "unresolved import")
        link.send(library("missing"), b"")
        with self.assertRaises(farjump.Refused):
            link.flush(WATCHDOG)

    def test_an_address_without_a_target_says_so(self):
        with self.assertRaisesRegex(farjump.ConnectError, "no target listens"):
            farjump.Link(self.address + "-not")
        with self.assertRaises(ConnectionError):
            farjump.Link("nowhere")
        with self.assertRaisesRegex(ValueError, "^mode: `fast` is no mode"):
            farjump.Link(self.address, mode="fast")

    def test_a_file_that_is_no_library_is_refused(self):
        with self.assertRaisesRegex(farjump.LibraryError, "no-such-file"):
            farjump.Library("no-such-file.so")

    def test_a_library_needs_no_file(self):
        echo = library("echo")
        contents = echo.path.read_bytes()
        taken = farjump.Library.from_bytes(contents)
        self.assertEqual((taken.name, str(taken.path), taken.identity), ("echo", "<memory>", echo.identity))
        with farjump.Link(self.address) as link:
            self.assertEqual(link.call(taken, b"a call"), b"a call")
        with self.assertRaisesRegex(farjump.LibraryError, "`echo` and not `other`"):
            farjump.Library.from_bytes(contents, "other")
        with self.assertRaisesRegex(farjump.LibraryError, "<memory>"):
            farjump.Library.from_bytes(contents[:999])

    def test_a_closed_link_says_so(self):
        echo = library("echo")
        with farjump.Link(self.address) as link:
            pending = link.inject(library("slow"), milliseconds(500))
        self.assertTrue(link.closed)
        link.close()
        for use in (lambda: link.call(echo, b""), link.flush, lambda: link.peer, pending.wait, pending.poll):
            with self.assertRaisesRegex(farjump.Closed, "was closed"):
                use()

    def test_closing_ends_the_waits_of_other_threads(self):
        link, ended = farjump.Link(self.address), []

        def wait(pending):
            try:
                pending.wait(WATCHDOG)
            except farjump.Closed:
                ended.append(True)

        pending = link.inject(library("slow"), milliseconds(2000))
        threads = [threading.Thread(target=wait, args=(pending,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.05)
        link.close()
        for thread in threads:
            thread.join()
        self.assertEqual(ended, [True, True])

    def test_classes_are_farjumps_and_die_when_unused(self):
        link = self.link()
        pending = link.inject(library("echo"), b"")
        for one in (link, pending, library("echo")):
            self.assertEqual(type(one).__module__, "farjump")
        gone = weakref.ref(pending)
        del pending, one
        gc.collect()
        self.assertIsNone(gone())


if __name__ == "__main__":
    unittest.main()
