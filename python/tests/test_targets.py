"""Options of a target, and its statistics."""

import os
import pathlib
import shutil
import struct
import time
import unittest

import farjump
from support import WATCHDOG, WithTarget, library, served


class Choices(WithTarget):
    def served(self, name, **choices):
        return served(f"unix:{self.folder.name}/{name}", **choices)

    def lengths(self, address, destination=b""):
        """Returns the lengths of the data of a target, and of its destination."""
        with farjump.Link(address) as link:
            reply = link.call(library("length"), destination, timeout=WATCHDOG)
        return tuple(number for (number,) in struct.iter_unpack("<Q", reply))

    def test_functions_get_bytes_or_a_file_as_data(self):
        path = os.path.join(self.folder.name, "data.bin")
        with open(path, "wb") as file:
            file.write(bytes(1234))
        changing = bytearray(77)
        for data, length in ((None, 0), (b"four", 4), (changing, 77), (path, 1234)):
            with self.subTest(data), self.served("data", data=data) as target:
                self.assertEqual(self.lengths(target.address), (length,))
        changing.extend(b"it was copied")

    def test_paths_may_have_any_bytes(self):
        folder = os.fsencode(self.folder.name)
        data, own = (os.fsdecode(os.path.join(folder, name)) for name in (b"data-\xff", b"own-\xff.so"))
        with open(data, "wb") as file:
            file.write(bytes(55))
        shutil.copy(library("echo").path, own)
        with self.served("bytes", data=data, local=[pathlib.Path(own)]) as target:
            self.assertEqual(self.lengths(target.address), (55,))
            with farjump.Link(target.address, mode="local") as link:
                self.assertEqual(link.call(library("echo"), b"own", timeout=WATCHDOG), b"own")

    def test_functions_forward_themselves_to_destinations(self):
        with self.served("second", data=bytes(22)) as second:
            with self.served("first", data=bytes(11), destination={"next": second.address}) as first:
                self.assertEqual(self.lengths(first.address, b"next"), (11, 22))
                self.assertEqual(eventually(lambda: first.stats.forwarded), 1)
                with self.assertRaisesRegex(farjump.Panicked, "no such destination"):
                    self.lengths(first.address, b"other")

    def test_limits_refuse_what_exceeds_them(self):
        with self.served("limited", max_payload=100, max_sources=1, mailbox_size=4096) as target:
            with farjump.Link(target.address) as link:
                self.assertEqual(link.call(library("echo"), bytes(100), timeout=WATCHDOG), bytes(100))
                with self.assertRaisesRegex(farjump.InjectError, "takes 100 at most"):
                    link.call(library("echo"), bytes(101), timeout=WATCHDOG)
                with self.assertRaises(farjump.ConnectError):
                    farjump.Link(target.address)
            self.assertEqual(eventually(lambda: target.stats.sources_refused), 1)

    def test_code_that_is_not_allowed_is_refused(self):
        echo, panics = library("echo"), library("panics")
        with self.served("allowing", allow_code=echo.identity) as target:
            with farjump.Link(target.address) as link:
                self.assertEqual(link.call(echo, b"yes", timeout=WATCHDOG), b"yes")
                with self.assertRaises(farjump.Refused):
                    link.call(panics, b"no", timeout=WATCHDOG)
            self.assertEqual(eventually(lambda: target.stats.refused), 1)

    def test_sources_without_the_right_are_refused(self):
        with self.served("observed", rights="observe,call", local=[library("echo")]) as target:
            with farjump.Link(target.address) as link, self.assertRaises(farjump.Refused):
                link.call(library("panics"), b"", timeout=WATCHDOG)
            with farjump.Link(target.address, mode="local") as link:
                self.assertEqual(link.call(library("echo"), b"own", timeout=WATCHDOG), b"own")

    def test_a_target_counts_calls_images_sources_and_links(self):
        with self.served("counting") as target:
            self.assertEqual(target.stats.calls, 0)
            with farjump.Link(target.address) as link:
                link.map(library("echo"), [b"12"] * 5).wait(WATCHDOG)
                self.assertEqual(eventually(lambda: target.stats.calls), 5)
                stats = target.stats
                self.assertEqual((stats.images_linked, stats.images, stats.sources, stats.links), (1, 1, 1, 1))
                self.assertGreater(stats.link_time, 0)
            self.assertEqual(eventually(lambda: target.stats.links_ended), 1)
        self.assertEqual(target.stats.calls, 5, "also when it is closed")

    def test_wrong_choices_are_named(self):
        address = f"unix:{self.folder.name}/wrong"
        for error, text, choices in (
            (ValueError, "is no mode", {"modes": ["fast"]}),
            (ValueError, "is no right", {"rights": "everything"}),
            (ValueError, "`abc` is no code id", {"allow_code": ["abc"]}),
            (TypeError, "data is of type int", {"data": 5}),
            (farjump.Error, "no-such-file", {"data": "no-such-file"}),
            (farjump.Error, "no-such-key", {"peer_key_file": "no-such-key"}),
            (farjump.Error, "no-such-key", {"key_file": "no-such-key", "destination": {"next": "tcp:127.0.0.1:9"}}),
            (farjump.LibraryError, "no-such-library", {"local": ["no-such-library.so"]}),
            (ValueError, "nowhere", {"destination": {"next": "nowhere"}}),
        ):
            with self.subTest(choices), self.assertRaisesRegex(error, text):
                farjump.Target(address, **choices)
        self.assertFalse(os.path.exists(f"{self.folder.name}/wrong"))


def eventually(look):
    """Waits until `look` returns more than zero, and returns its result: another thread's statistics are a little late."""
    until = time.monotonic() + WATCHDOG
    while not look() and time.monotonic() < until:
        time.sleep(0.005)
    return look()


if __name__ == "__main__":
    unittest.main()
