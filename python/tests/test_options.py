"""Options: each is set by its keyword argument and read back, and wrong ones are named."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import farjump
from support import ROOT, WATCHDOG, WithTarget, library, options, python, served

FOLDER = tempfile.gettempdir()
ECHO = os.fspath(library("echo").path)
# For each option of a target: a value, and its text. The order is that of the reference. A folder takes the place of {}: it
# has a key, and a library with symbols.
OF_TARGET = {
    "key_file": (pathlib.Path("no-such-key"), "no-such-key"),
    "peer_key_file": ("{}/key", "{}/key"),
    "peer_timeout": (2.5, "2500ms"),
    "clear": (True, "yes"),
    "data": (pathlib.Path(ECHO), ECHO),
    "export_library": (["libm.so.6", pathlib.Path("libc.so.6")], "libm.so.6,libc.so.6"),
    "wanted_library": ("libz.so.1,libm.so.6", "libz.so.1,libm.so.6"),
    "rights": (["observe", "call"], "observe,call"),
    "allow_export": ("on", "yes"),
    "process_symbols": (True, "yes"),
    "modes": (iter(["cached", "in-place"]), "cached,in-place"),
    "local": ([ECHO], ECHO),
    "destination": ({"next": "unix:next.sock", "other": "unix:@other"}, "next=unix:next.sock,other=unix:@other"),
    "allow_making": (True, "yes"),
    "forward_mode": ("always", "always"),
    "max_forwards": (7, "7"),
    "max_hops": (8, "8"),
    "max_forward_bytes": (1 << 16, "64K"),
    "max_again": ("9", "9"),
    "allow_code": (["0" * 32, "f" * 32], "0" * 32 + "," + "f" * 32),
    "max_frame": ("131072", "128K"),
    "max_image": (1 << 17, "128K"),
    "max_payload": (65537, "65537"),
    "max_sources": (3, "3"),
    "max_source_memory": ("64M", "64M"),
    "mailbox_size": (1 << 16, "64K"),
    "prefault": (True, "yes"),
    "store_bytes": ("1MiB", "1M"),
    "store_images": (11, "11"),
    "arena_size": (2 << 20, "2M"),
    "objects": (1 << 20, "1M"),
    "objects_spill_folder": (pathlib.Path(FOLDER), FOLDER),
    "objects_spill_bytes": ("4M", "4M"),
    "cpu_level": ("baseline", "baseline"),
    "wait_policy": ("100", "100/25/0/16"),
    "stall_timeout": (0.5, "500ms"),
    "handshake_timeout": (3, "3s"),
    "control_interval": ("2ms", "2ms"),
    "program": ("a test", "a test"),
    "transport": ("shm", "shm"),
    "ucx_tcp": (True, "yes"),
    "perf_map": (True, "yes"),
    "crash_report": (True, "yes"),
    "debug": (True, "yes"),
    "debug_symbols": (["{}/libecho.so"], "{}/libecho.so"),
}
OF_LINK = {
    "transport": ("shm", "shm"),
    "ucx_tcp": (True, "yes"),
    "key_file": (pathlib.Path("no-such-key"), "no-such-key"),
    "peer_timeout": ("1.5m", "90s"),
    "clear": ("yes", "yes"),
    "mode": ("always", "always"),
    "connect_timeout": (None, "forever"),
    "send_timeout": (0.25, "250ms"),
    "reply_mailbox_size": ("64K", "64K"),
    "prefault": (True, "yes"),
    "wait_policy": ("never", "never"),
    "control_interval": (0.002, "2ms"),
    "program": ("a test", "a test"),
}
OF_STORE = {
    "connect_timeout": (float("inf"), "forever"),
    "timeout": (20, "20s"),
    "transport": ("shm", "shm"),
    "key_file": ("no-such-key", "no-such-key"),
    "mapped": (False, "no"),
}
OF_PUBLISHER = {
    "capacity": (3, "3"),
    "keep": (1, "1"),
    "await_subscribers": ("0", "0"),
    "overflow": ("drop-oldest", "drop-oldest"),
}
OF_SUBSCRIBER = {"from_now": (True, "yes"), "publishers": (2, "2")}
# What an option is given with: others that it needs. The libraries of debug_symbols are read only in debug mode.
WITH = {
    "objects_spill_folder": {"objects": "1M", "objects_spill_bytes": "4M"},
    "objects_spill_bytes": {"objects": "1M", "objects_spill_folder": FOLDER},
    "debug_symbols": {"debug": True},
    "compiler": {"bitcode": "prefer"},
    "llvm": {"bitcode": "prefer"},
    "bitcode_cache": {"bitcode": "prefer"},
    "compile_timeout": {"bitcode": "prefer"},
    "compile_memory": {"bitcode": "prefer"},
    "cc": {"compile_for_peer": True},
}
# Options of parts that the wheel lacks: a value, and the part.
LACKED_BY_TARGET = {
    "bitcode": ("fallback", "bitcode"),
    "compiler": ("farjump_compiler", "bitcode"),
    "llvm": ("libLLVM.so.17", "bitcode"),
    "bitcode_cache": (FOLDER, "bitcode"),
    "compile_timeout": (1, "bitcode"),
    "compile_memory": ("2G", "bitcode"),
    "device": ("rxe0", "verbs"),
}
LACKED_BY_LINK = {"device": ("rxe0:1", "verbs"), "compile_for_peer": (True, "build"), "cc": ("cc", "build")}


def in_folder(value, folder):
    """Returns a value with a folder in the place of {}."""
    if isinstance(value, list):
        return [in_folder(item, folder) for item in value]
    return value.replace("{}", folder) if isinstance(value, str) else value


def read_back(folder):
    """Makes a target with each option, and prints those that are read back otherwise."""
    for name, (value, text) in OF_TARGET.items():
        value, text = in_folder(value, folder), in_folder(text, folder)
        with farjump.Target(f"unix:{folder}/each", **{name: value}, **WITH.get(name, {})) as target:
            if target.options[name] != text:
                print(f"{name} is {target.options[name]}, not {text}")
    print(" ".join(sorted(target.options)))
    os.remove(f"/tmp/perf-{os.getpid()}.map")


class Options(WithTarget):
    def test_each_option_of_a_target_is_read_back(self):
        source = os.path.join(ROOT, "integration-tests/ifuncs/echo.c")
        echo, key = f"{self.folder.name}/libecho.so", f"{self.folder.name}/key"
        for arguments in (["build", "-g", source, "-o", echo], ["key", key, "--json"]):
            command = [os.environ["TEST_PROGRAM"], *arguments]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=WATCHDOG)
        # A process of its own: reports of crashes stay until the end of the process.
        said = self.ends(python("import sys, test_options\ntest_options.read_back(sys.argv[1])", self.folder.name))
        names = sorted([*OF_TARGET, *LACKED_BY_TARGET])
        self.assertEqual(said, " ".join(names) + "\n")
        self.assertEqual(sorted(options("Target")), names)

    def test_each_option_of_a_link_is_read_back(self):
        for name, (value, text) in OF_LINK.items():
            with self.subTest(name), farjump.Link(self.address, **{name: value}) as link:
                self.assertEqual(link.options[name], text)
        names = sorted([*OF_LINK, *LACKED_BY_LINK])
        self.assertEqual(sorted(self.link().options), names)
        self.assertEqual(sorted(options("Link")), names)
        with self.assertRaises(farjump.Closed):
            link.options

    def test_each_option_of_a_store_and_a_topic_is_taken(self):
        with served(f"unix:{self.folder.name}/objects", objects="1M") as target:
            for name, (value, text) in OF_STORE.items():
                for given in (value, text):
                    with self.subTest(name, given=given), farjump.Store(target.address, **{name: given}) as store:
                        store.evict(store.put(b"bytes"))
            with farjump.Store(target.address) as store:
                for name, (value, text) in OF_PUBLISHER.items():
                    for given in (value, text):
                        with self.subTest(name, given=given), store.publisher(f"{name} {given}", **{name: given}):
                            pass
                for name, (value, text) in OF_SUBSCRIBER.items():
                    for given in (value, text):
                        with self.subTest(name, given=given), store.subscribe("topic", **{name: given}):
                            pass
        self.assertEqual(sorted(options("Store")), sorted(OF_STORE))
        self.assertEqual(sorted(options("Store.publisher")), sorted(OF_PUBLISHER))
        self.assertEqual(sorted(options("Store.subscribe")), sorted(OF_SUBSCRIBER))

    def test_the_time_limit_of_a_store_is_that_of_its_publishers(self):
        with served(f"unix:{self.folder.name}/limited", objects="1M") as target:
            with farjump.Store(target.address, timeout=0.5) as store:
                publisher = store.publisher("topic", capacity=1)
                publisher.publish_bytes(b"one")
                for given in ({}, {"timeout": ...}):
                    with self.subTest(given), self.assertRaises(farjump.StreamFull):
                        publisher.publish_bytes(b"two", **given)

    def test_options_of_parts_that_the_wheel_lacks_name_the_part(self):
        for name, (value, part) in LACKED_BY_TARGET.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"needs a build with the feature `{part}`"):
                farjump.Target(f"unix:{self.folder.name}/lacking", **{name: value}, **WITH.get(name, {}))
        for name, (value, part) in LACKED_BY_LINK.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"needs a build with the feature `{part}`"):
                farjump.Link(self.address, **{name: value}, **WITH.get(name, {}))

    def test_none_keeps_the_default(self):
        with farjump.Target(f"unix:{self.folder.name}/none", **dict.fromkeys(options("Target"))) as target:
            default = farjump.Target(f"unix:{self.folder.name}/default")
            self.assertEqual(target.options, default.options)
            default.close()

    def test_a_time_without_a_range_may_be_0_or_endless(self):
        for given, text in ((0, "0s"), (5e-324, "0s"), ("0ms", "0s"), (float("inf"), "forever"), ("forever", "forever")):
            with self.subTest(given):
                with farjump.Link(self.address, send_timeout=given, control_interval=given) as link:
                    self.assertEqual([link.options[name] for name in ("send_timeout", "control_interval")], [text, text])
                with farjump.Target(f"unix:{self.folder.name}/times", control_interval=given) as target:
                    self.assertEqual(target.options["control_interval"], text)

    def test_no_right_is_a_value_and_unused_symbols_are_not_read(self):
        address = f"unix:{self.folder.name}/without"
        for rights in ([], "", "none"):
            with self.subTest(rights), farjump.Target(address, rights=rights) as target:
                self.assertEqual(target.options["rights"], "none")
        with farjump.Target(address, debug=False, debug_symbols="no-such-library.so") as target:
            self.assertEqual(target.options["debug_symbols"], "no-such-library.so")

    def test_libraries_and_their_paths_are_local_together(self):
        with served(f"unix:{self.folder.name}/local", local=(library("length"), library("echo").path)) as target:
            self.assertEqual(target.options["local"], ECHO)
            with farjump.Link(target.address, mode="local") as link:
                self.assertEqual(link.call(library("echo"), b"own", timeout=WATCHDOG), b"own")

    def test_a_wrong_option_is_named_with_the_text_of_the_table(self):
        address = f"unix:{self.folder.name}/wrong"
        for error, text, wrong in (
            (TypeError, "max_paylod is no option of a target: did you mean `max_payload`?", {"max_paylod": 1}),
            (TypeError, "listen is no option of a target", {"listen": address}),
            (TypeError, "exports is called `export_library` now", {"exports": ["libm.so.6"]}),
            (TypeError, "wanted_libraries is called `wanted_library` now", {"wanted_libraries": None}),
            (TypeError, "destinations is called `destination` now", {"destinations": {}}),
            (TypeError, "store is called `objects` now", {"store": 1 << 20}),
            (TypeError, "store_capacity is called `store_bytes` now", {"store_capacity": (1 << 20, 8)}),
            (TypeError, "max_payload is of type float: give an int or a str", {"max_payload": 1e6}),
            (TypeError, "max_sources is of type bool: give an int or a str", {"max_sources": True}),
            (TypeError, "peer_timeout is of type bytes: give seconds or a str", {"peer_timeout": b"2s"}),
            (TypeError, "clear is of type int: give a bool or a str", {"clear": 1}),
            (TypeError, "program is of type int: give a str", {"program": 7}),
            (TypeError, "key_file is of type bytes: give a str or a path", {"key_file": b"key"}),
            (TypeError, "modes is of type int: give an iterable of str or paths", {"modes": 5}),
            (TypeError, "rights is of type int: give an iterable of str or paths", {"rights": 5}),
            (TypeError, "local is of type list: give an iterable of str or paths", {"local": [5]}),
            (TypeError, "destination is of type list: give a mapping from str to str", {"destination": ["next"]}),
            (TypeError, "destination is of type dict: give a mapping from str to str", {"destination": {"next": 1}}),
            (ValueError, "max_payload: `64X` is no number of bytes: write it out", {"max_payload": "64X"}),
            (ValueError, "max_payload: 0 is out of range: give 1 or more", {"max_payload": 0}),
            (ValueError, "max_payload: `-1` is no number of bytes", {"max_payload": -1}),
            (ValueError, "mailbox_size: 4000G is out of range: give 0 to 2G", {"mailbox_size": 4000 << 30}),
            (ValueError, "arena_size: 4000G is more than the .* of memory", {"arena_size": 4000 << 30}),
            (ValueError, "objects: 4000G is more than the .* of memory", {"objects": "4000G"}),
            (ValueError, "max_sources: `1.5` is no whole number", {"max_sources": "1.5"}),
            (ValueError, "max_sources: 0 is out of range: give 1 to 4294967295", {"max_sources": 0}),
            (ValueError, "peer_timeout: 500ms is out of range: give 1s to 32767s", {"peer_timeout": 0.5}),
            (ValueError, "peer_timeout: `2` is no duration: write a number and us, ms, s or m", {"peer_timeout": "2"}),
            (ValueError, "stall_timeout: `-1.0s` is no duration", {"stall_timeout": -1}),
            (ValueError, "stall_timeout: `NaNs` is no duration", {"stall_timeout": float("nan")}),
            (ValueError, "stall_timeout: 0s is out of range: give 1ns to 86400s", {"stall_timeout": 0}),
            (ValueError, "stall_timeout: forever is out of range: give 1ns to 86400s", {"stall_timeout": float("inf")}),
            (ValueError, "clear: `perhaps` is neither yes nor no", {"clear": "perhaps"}),
            (ValueError, "modes: `a,b` is no mode", {"modes": ["a,b"]}),
            (ValueError, "modes: `a` is no mode", {"modes": "a,b"}),
            (ValueError, "modes: a target without a mode runs no call: name one at least", {"modes": []}),
            (ValueError, "modes: a target without a mode runs no call: name one at least", {"modes": ""}),
            (ValueError, "destination: `next` is no destination: write NAME=ADDRESS", {"destination": "next"}),
            (ValueError, "transport: .*carrier", {"transport": "carrier"}),
            (
                ValueError, "objects_spill_folder has no effect without `objects`: give that too",
                {"objects_spill_folder": FOLDER, "objects_spill_bytes": "4M"},
            ),
            (
                ValueError, "objects_spill_folder has no effect without `objects_spill_bytes`: give that too",
                {"objects": "1M", "objects_spill_folder": FOLDER},
            ),
            (
                ValueError, "objects_spill_bytes has no effect without `objects_spill_folder`: give that too",
                {"objects": "1M", "objects_spill_bytes": "4M"},
            ),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(error, f"^{text.replace('?', '[?]')}"):
                farjump.Target(address, **wrong)
        with self.assertRaisesRegex(TypeError, "^max_payload is no option of a link"):
            farjump.Link(self.address, max_payload=1)
        with self.assertRaisesRegex(ValueError, "^reply_mailbox_size: 3G is out of range: give 0 to 2G"):
            farjump.Link(self.address, reply_mailbox_size="3G")
        with self.assertRaisesRegex(TypeError, "^key is called `key_file` now"):
            farjump.Store(self.address, key="key")
        self.assertFalse(os.path.exists(f"{self.folder.name}/wrong"))


if __name__ == "__main__":
    unittest.main()
