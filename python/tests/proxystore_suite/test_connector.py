"""The connector: its operations, its keys, its ends, and its owner."""

import contextlib
import copy
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

import farjump
from children import WATCHDOG, WithFolder, owners_of
from farjump import _owners
from farjump.proxystore import FarjumpConnector, FarjumpKey, FarjumpStore
from proxystore.connectors.file import FileConnector
from proxystore.connectors.protocols import Connector, DeferrableConnector


class Operations(WithFolder):
    def test_objects_are_put_read_and_evicted(self):
        connector = self.connector()
        self.assertIsInstance(connector, Connector)
        self.assertIsInstance(connector, DeferrableConnector)
        key = connector.put(b"one")
        view = connector.get(key)
        self.assertIs(type(view), memoryview)
        self.assertTrue(view.readonly)
        self.assertEqual(view, b"one")
        self.assertTrue(connector.exists(key))
        connector.evict(key)
        self.assertEqual(view, b"one", "a view keeps its object")
        self.assertFalse(connector.exists(key))
        self.assertIsNone(connector.get(key))
        connector.evict(key)
        keys = connector.put_batch([b"a", bytearray(b"b"), memoryview(b"c"), b""])
        connector.evict(keys[1])
        self.assertEqual(connector.get_batch(keys), [b"a", None, b"c", b""])
        self.assertEqual(connector.get_batch([]), [])
        self.assertEqual(connector.get(connector.put_parts([b"x", b"", bytearray(b"yz")])), b"xyz")

    def test_a_reserved_key_is_set_and_waited_for(self):
        connector = self.connector()
        key = connector.new_key()
        self.assertFalse(connector.exists(key))
        self.assertIsNone(connector.get(key))
        with self.assertRaises(farjump.TimedOut):
            connector.wait(key, 0.05)
        setting = threading.Timer(0.1, connector.set, (key, b"result"))
        setting.start()
        self.assertEqual(connector.wait(key, WATCHDOG), b"result")
        setting.join()
        connector.set(key, b"another result")
        self.assertEqual(connector.get(key), b"another result")
        put = connector.put(b"old")
        connector.set(put, b"newer")
        self.assertEqual(connector.get(put), b"newer")

    def test_keys_are_values(self):
        connector = self.connector()
        key, other = connector.put_batch([b"1", b"1"])
        same = pickle.loads(pickle.dumps(key))
        self.assertEqual(same, key)
        self.assertEqual({key, same, other}, {key, other})
        self.assertEqual(copy.deepcopy(key), key)
        self.assertEqual(connector.get(same), b"1")

    def test_bad_keys_and_objects_raise_value_or_type_errors(self):
        connector = self.connector()
        good = connector.put(b"good")
        for key in (FarjumpKey(b""), FarjumpKey(b"junk"), FarjumpKey(good.handle[:-1]), FarjumpKey(good.handle + b"x")):
            for use in (connector.get, connector.exists, connector.evict, connector.wait):
                with self.assertRaises(ValueError, msg=key):
                    use(key)
        for key in (None, 7, (), FarjumpKey(None), FarjumpKey("text"), "text"):
            for use in (connector.get, connector.exists, connector.evict):
                with self.assertRaises(TypeError, msg=key):
                    use(key)
        for obj in ("text", None, 3, [b"list"]):
            with self.assertRaises(TypeError):
                connector.put(obj)
            with self.assertRaises(TypeError):
                connector.set(good, obj)
        self.assertEqual(connector.get(good), b"good")

    def test_keys_of_another_owner_are_missing(self):
        connector = self.connector()
        with FarjumpConnector(f"unix:{self.folder}/other") as other:
            key = other.put(b"other's")
            self.assertIsNone(connector.get(key))
            self.assertFalse(connector.exists(key))
            connector.evict(key)
            self.assertEqual(other.get(key), b"other's")

    def test_threads_share_a_connector(self):
        connector = self.connector()
        wrong = []

        def works(number):
            for turn in range(50):
                value = b"%d of %d" % (turn, number)
                key = connector.put(value)
                if connector.get(key) != value:
                    wrong.append(value)
                connector.evict(key)

        threads = [threading.Thread(target=works, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_ctrl_c_ends_a_wait(self):
        child = self.child(
            "connector = FarjumpConnector(address)\n"
            "print('ready', flush=True)\n"
            "try:\n"
            "    connector.wait(connector.new_key())\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        self.assertEqual(child.stdout.readline(), b"ready\n")
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(child), b"interrupted\n")


class Ends(WithFolder):
    def test_close_is_idempotent_and_ends_the_use(self):
        connector = self.connector()
        key = connector.put(b"x")
        connector.close()
        connector.close()
        connector.close(clear=True)
        with self.assertRaisesRegex(farjump.Closed, "was closed"):
            connector.put(b"x")
        self.assertIsNone(connector.get(key))
        self.assertIn("FarjumpConnector", repr(connector))

    def test_a_closed_connector_acts_like_one_for_files_beside_open_ones(self):
        def outcomes(connector, key):
            """Returns the results of a closed connector, and checks that it refuses to put."""
            found = [connector.exists(key), connector.get(key), connector.get_batch([key]), connector.evict(key)]
            for makes in (lambda: connector.put(b"y"), lambda: connector.put_batch([b"y"])):
                with self.assertRaises(Exception):
                    makes()
            return found

        file = FileConnector(f"{self.folder}/files")
        key = file.put(b"x")
        file.close()
        wanted = outcomes(file, key)
        self.assertEqual(wanted, [False, None, [None], None])
        for others in (0, 1, 2):
            with self.subTest(others=others), contextlib.ExitStack() as opened:
                connector = FarjumpConnector(self.address)
                open_ones = [opened.enter_context(FarjumpConnector(self.address)) for _ in range(others)]
                key, reserved = connector.put(b"x"), connector.new_key()
                connector.close()
                self.assertEqual(outcomes(connector, key), wanted)
                for refused in (lambda: connector.set(reserved, b"y"), connector.new_key, lambda: connector.wait(key)):
                    with self.assertRaisesRegex(farjump.Closed, "make another"):
                        refused()
                with self.assertRaises(ValueError):
                    connector.get(FarjumpKey(b"junk"))
                for other in open_ones:
                    self.assertEqual(other.get(key), b"x", "it evicted nothing")

    def test_another_connector_works_on_and_after(self):
        with self.connector() as first:
            key = first.put(b"shared")
            second = FarjumpConnector.from_config(pickle.loads(pickle.dumps(first.config())))
            self.assertEqual(second.get(key), b"shared")
        self.assertEqual(second.get(key), b"shared")
        owner = self.owner()
        second.close()
        self.gone(owner)

    def test_config_has_what_was_given(self):
        first = self.connector(memory=1 << 20, clear=True, start_timeout=WATCHDOG)
        config = first.config()
        self.assertEqual(config, {"address": self.address, "memory": 1 << 20, "clear": True, "start_timeout": WATCHDOG})
        self.assertEqual(FarjumpConnector.from_config(config).config(), config)

    def test_clear_ends_the_owner_for_all(self):
        first, second = self.connector(), self.connector()
        key = first.put(b"x")
        owner = self.owner()
        child = self.child("FarjumpConnector(address).close(clear=True)\n")
        self.ended(child)
        self.gone(owner)
        with self.assertRaises(farjump.PeerGone):
            second.get(key)
        third = self.connector()
        self.assertIsNone(third.get(key), "another epoch")
        first.close(clear=True)
        self.assertIsNone(third.get(key), "the first had another owner")
        owner = self.owner()
        third.close(clear=True)
        self.gone(owner)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_dropped_connector_leaves_its_owner(self):
        FarjumpConnector(self.address)
        self.ends_all()

    def test_a_programs_own_target_serves_as_well_and_is_not_cleared(self):
        with farjump.Target(self.address, objects="1M") as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with FarjumpConnector(self.address, start=False) as connector:
                self.assertEqual(connector.get(connector.put(b"x")), b"x")
            with self.assertRaisesRegex(ValueError, "no owner process"):
                FarjumpConnector(self.address).close(clear=True)
            self.assertEqual(owners_of(self.folder), [])
            target.stop()
            serving.join()

    def test_a_target_over_tcp_serves_as_well(self):
        with farjump.Target("tcp:127.0.0.1:0", objects="1M") as target:
            serving = threading.Thread(target=target.run)
            serving.start()
            with FarjumpConnector(target.address) as connector:
                key = connector.put(bytes(100_000))
                self.assertEqual(connector.get(key), bytes(100_000))
                self.assertTrue(connector.exists(key))
                proxy = FarjumpStore(connector=connector).proxy([1, 2])
                self.assertEqual(pickle.loads(pickle.dumps(proxy)), [1, 2])
            target.stop()
            serving.join()

    def test_a_full_store_raises_store_full(self):
        connector = self.connector(memory=1 << 20)
        with self.assertRaises(farjump.StoreFull):
            connector.put(bytes(2 << 20))
        key = connector.put(bytes(800_000))
        with self.assertRaises(farjump.StoreFull):
            connector.put(bytes(800_000))
        connector.evict(key)
        connector.put(bytes(800_000))

    def test_none_is_started_unasked(self):
        with self.assertRaisesRegex(farjump.ConnectError, "no process listens"):
            FarjumpConnector(self.address, start=False)
        with self.assertRaises(farjump.ConnectError):
            FarjumpConnector(f"unix:{self.folder}/none/store")
        with self.assertRaises(farjump.ConnectError):
            FarjumpConnector(f"unix:{self.folder}/{'long' * 40}")
        self.assertEqual(os.listdir(self.folder), [])


class DefaultAddress(WithFolder):
    def test_it_is_in_the_folder_of_the_user_that_is_safe(self):
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.folder):
            self.assertEqual(_owners.default_address(), f"unix:{self.folder}/farjump/store")
            os.chmod(f"{self.folder}/farjump", 0o755)
            with self.assertRaisesRegex(farjump.ConnectError, "lets others in"):
                _owners.default_address()
            os.rmdir(f"{self.folder}/farjump")
            os.symlink("/tmp", f"{self.folder}/farjump")
            with self.assertRaisesRegex(farjump.ConnectError, "not a folder"):
                _owners.default_address()
            os.remove(f"{self.folder}/farjump")
            os.chmod(self.folder, 0o711)
            fallback = f"/tmp/farjump-{os.geteuid()}"
            is_new = not os.path.exists(fallback)
            self.assertEqual(_owners.default_address(), f"unix:{fallback}/store", "the other lets others in")
            if is_new:
                os.rmdir(fallback)


    def test_a_long_runtime_folder_is_used_if_a_socket_path_fits(self):
        for length in (70, 88, 93, 94, 200):
            with self.subTest(length=length), self.temporary() as temporary:
                runtime = f"{self.folder}/".ljust(length, "r")
                os.mkdir(runtime, 0o700)
                fits = len(f"{runtime}/farjump/store") <= 107
                folder = f"{runtime}/farjump" if fits else f"{temporary}/farjump-{os.geteuid()}"
                with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=runtime), FarjumpConnector() as connector:
                    self.assertEqual(connector.address, f"unix:{folder}/store")
                    self.assertEqual(connector.get(connector.put(b"x")), b"x")
                    connector.close(clear=True)
                shutil.rmtree(runtime)

    @contextlib.contextmanager
    def temporary(self):
        """Replaces /tmp by another folder."""
        with tempfile.TemporaryDirectory(prefix="fj") as folder, mock.patch.object(_owners, "_TEMPORARY", folder):
            yield folder

    def test_folders_that_cannot_be_made_fail_with_a_remedy(self):
        # No user, not even root, can make a folder in any of these.
        for runtime in ("", "/proc/self"):
            with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=runtime), mock.patch.object(_owners, "_TEMPORARY", "/proc"):
                with self.assertRaisesRegex(farjump.ConnectError, "/proc/farjump-.*Set XDG_RUNTIME_DIR to .*give an address"):
                    FarjumpConnector()
        with self.assertRaisesRegex(farjump.ConnectError, "owner-lock.*Give an address in a folder"):
            FarjumpConnector("unix:/proc/store")


class LongPaths(WithFolder):
    def path(self, length):
        return f"{self.folder}/".ljust(length, "p")

    def test_a_connector_reaches_a_target_wherever_that_can_listen(self):
        for length in (100, 101, 102, 104, 107):
            with self.subTest(length=length):
                address = f"unix:{self.path(length)}"
                with farjump.Target(address, objects="1M") as target:
                    serving = threading.Thread(target=target.run)
                    serving.start()
                    with FarjumpConnector(address) as connector:
                        key = connector.put(b"x")
                        self.assertEqual(connector.get(key), b"x")
                        self.assertEqual(FarjumpStore(connector=connector).proxy([1]), [1])
                    target.stop()
                    serving.join()

    def test_an_owner_is_started_wherever_a_target_can_listen(self):
        for length in (101, 102, 107):
            with self.subTest(length=length):
                with FarjumpConnector(f"unix:{self.path(length)}") as connector:
                    key = connector.put(b"x")
                    child = self.child(
                        "with FarjumpConnector(sys.argv[2]) as c:\n"
                        "    print(bytes(c.get(FarjumpKey(bytes.fromhex(sys.argv[3])))))\n",
                        connector.address,
                        key.handle.hex(),
                    )
                    self.assertEqual(self.ended(child), b"b'x'\n")
                    connector.close(clear=True)

    def test_a_longer_path_is_refused_with_limit_and_remedy(self):
        for start in (True, False):
            with self.assertRaisesRegex(farjump.ConnectError, "has 108 bytes, .* 107 at most: give a shorter one"):
                FarjumpConnector(f"unix:{self.path(108)}", start=start)
        self.assertEqual(os.listdir(self.folder), [])


class Starting(WithFolder):
    def key(self, child):
        """Returns the key of the handle that a child prints."""
        return FarjumpKey(bytes.fromhex(child.stdout.readline().decode()))

    def test_many_that_start_at_once_get_one(self):
        children = [
            self.child(
                "sys.stdin.buffer.read(1)\n"
                "connector = FarjumpConnector(address)\n"
                "print(connector.put(b'%d' % os.getpid()).handle.hex(), flush=True)\n"
                "sys.stdin.buffer.read(1)\n"
            )
            for _ in range(6)
        ]
        for child in children:
            child.stdin.write(b"x")
            child.stdin.flush()
        keys = [self.key(child) for child in children]
        self.owner()
        connector = self.connector()
        for child, key in zip(children, keys):
            self.assertEqual(connector.get(key), b"%d" % child.pid)
            self.ended(child)
        connector.close()

    def test_an_owner_outlives_its_starter_while_others_use_it(self):
        child = self.child(
            "connector = FarjumpConnector(address)\n"
            "print(connector.put(b'kept').handle.hex(), flush=True)\n"
            "sys.stdin.buffer.read(1)\n"
        )
        key = self.key(child)
        owner = self.owner()
        connector = self.connector()
        child.kill()
        child.wait()
        time.sleep(0.1)
        self.assertEqual(connector.get(key), b"kept")
        connector.close()
        self.gone(owner)

    def test_an_owner_ends_with_a_killed_starter(self):
        child = self.child("connector = FarjumpConnector(address)\nprint('ready', flush=True)\nsys.stdin.read()\n")
        self.assertEqual(child.stdout.readline(), b"ready\n")
        owner = self.owner()
        child.kill()
        self.gone(owner)

    def test_an_owner_is_in_no_session_or_folder_of_its_starter(self):
        self.connector()
        owner = self.owner()
        self.assertNotEqual(os.getsid(owner), os.getsid(0))
        self.assertEqual(os.readlink(f"/proc/{owner}/cwd"), "/")
        self.assertEqual(os.readlink(f"/proc/{owner}/fd/0"), os.devnull)
        for number in (1, 2):
            self.assertEqual(os.readlink(f"/proc/{owner}/fd/{number}"), f"{self.folder}/store.owner-log")

    def test_a_starter_that_is_killed_while_it_starts_leaves_none(self):
        for delay in (0.0, 0.05, 0.1, 0.2):
            child = self.child("print('ready', flush=True)\nFarjumpConnector(address)\nsys.stdin.read()\n")
            self.assertEqual(child.stdout.readline(), b"ready\n")
            time.sleep(delay)
            child.kill()
            child.wait()
            # Its owner may still come up. Then the connector uses it.
            with FarjumpConnector(self.address) as connector:
                self.assertEqual(connector.get(connector.put(b"x")), b"x")
            self.ends_all()

    def test_an_owner_that_cannot_start_fails_with_the_cause(self):
        with mock.patch.object(sys, "executable", "/bin/false"):
            with self.assertRaisesRegex(farjump.ConnectError, "ended early with status 1"):
                FarjumpConnector(self.address)
        with mock.patch.object(sys, "executable", self.folder):
            with self.assertRaisesRegex(farjump.ConnectError, "no owner can be started"):
                FarjumpConnector(self.address)
        with mock.patch.object(sys, "executable", ""):
            with self.assertRaisesRegex(farjump.ConnectError, "names no interpreter"):
                FarjumpConnector(self.address)
        with self.assertRaisesRegex(farjump.ConnectError, "no owner can be started"):
            FarjumpConnector(self.address, memory=-1)
        for name in os.listdir(self.folder):
            os.remove(os.path.join(self.folder, name))

    def test_an_owner_that_does_not_come_up_is_killed(self):
        script = f"{self.folder}/sleeps"
        with open(script, "w") as file:
            file.write("#!/bin/sh\nexec sleep 60\n")
        os.chmod(script, 0o700)
        with mock.patch.object(sys, "executable", script):
            with self.assertRaisesRegex(farjump.TimedOut, "start_timeout"):
                FarjumpConnector(self.address, start_timeout=0.3)
        os.remove(script)
        with self.connector() as connector:
            connector.put(b"x")

    def test_the_path_of_another_program_is_not_taken(self):
        with open(f"{self.folder}/store", "w") as file:
            file.write("precious")
        with self.assertRaises(farjump.Error):
            FarjumpConnector(self.address)
        with open(f"{self.folder}/store") as file:
            self.assertEqual(file.read(), "precious")
        os.remove(f"{self.folder}/store")


class Killed(WithFolder):
    def kill(self):
        owner = self.owner()
        os.kill(owner, signal.SIGKILL)
        self.gone(owner)

    def recovers(self, key):
        """Checks that a new connector has a new owner, without the objects of the killed one."""
        with FarjumpConnector(self.address) as connector:
            if key is not None:
                self.assertIsNone(connector.get(key))
                self.assertFalse(connector.exists(key))
            again = connector.put(b"again")
            self.assertEqual(connector.get(again), b"again")
            connector.close(clear=True)

    def test_an_idle_connector_raises_peer_gone_after_a_kill(self):
        connector = self.connector()
        key = connector.put(b"lost")
        view = connector.get(key)
        self.kill()
        self.assertEqual(view, b"lost", "memory that is mapped stays")
        for use in (
            lambda: connector.get(key),
            lambda: connector.put(b"x"),
            lambda: connector.exists(key),
            lambda: connector.evict(key),
            lambda: connector.get_batch([key, key]),
            connector.new_key,
        ):
            with self.assertRaises(farjump.PeerGone):
                use()
        self.recovers(key)

    def test_a_waiting_connector_raises_peer_gone_on_a_kill(self):
        connector = self.connector()
        key = connector.new_key()
        killing = threading.Timer(0.2, self.kill)
        killing.start()
        with self.assertRaises(farjump.PeerGone):
            connector.wait(key, WATCHDOG)
        killing.join()
        self.recovers(key)

    def test_a_putting_connector_raises_peer_gone_on_a_kill(self):
        connector = self.connector()
        killing = threading.Timer(0.2, self.kill)
        killing.start()
        key = None
        with self.assertRaises(farjump.PeerGone):
            while True:
                key = connector.put(bytes(100_000))
                connector.evict(key)
        killing.join()
        self.recovers(key)

    def test_clearing_after_a_kill_raises_nothing(self):
        connector = self.connector()
        self.kill()
        connector.close(clear=True)
        self.recovers(None)

    def test_an_owner_with_sockets_closed_one_by_one_is_replaced(self):
        target, second = (socket.socket(socket.AF_UNIX) for _ in range(2))
        target.bind(f"{self.folder}/store")
        target.listen()
        with second:
            second.bind(f"{self.folder}/store.owner")
        closing = threading.Timer(0.2, target.close)
        closing.start()
        self.recovers(None)
        closing.join()

    def test_one_that_is_starting_is_replaced(self):
        for delay in (0.0, 0.05, 0.1):
            child = self.child(
                "try:\n"
                "    with FarjumpConnector(address) as connector:\n"
                "        while True:\n"
                "            connector.evict(connector.put(b'x'))\n"
                "except farjump.Error as error:\n"
                "    print(type(error).__name__, error)\n"
            )
            time.sleep(delay)
            while child.poll() is None:
                for owner in owners_of(self.folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(owner, signal.SIGKILL)
            said = self.ended(child).decode()
            self.assertRegex(said, "^(ConnectError|PeerGone|TimedOut)")
            self.recovers(None)

    def test_clearing_at_a_stopped_owner_times_out(self):
        # Another connector starts and reaches the owner, as the short limit is for the next one alone.
        self.connector()
        connector = self.connector(start_timeout=0.3)
        owner = self.owner()
        os.kill(owner, signal.SIGSTOP)
        with self.assertRaisesRegex(farjump.TimedOut, "stopped or busy"):
            connector.close(clear=True)
        os.kill(owner, signal.SIGCONT)
        self.gone(owner)


class Environment(WithFolder):
    def test_the_owner_has_the_package_of_its_starter(self):
        # A folder with another farjump, which the program must not import.
        os.mkdir(f"{self.folder}/here")
        with open(f"{self.folder}/here/farjump.py", "w") as file:
            file.write("raise RuntimeError('the wrong one')")
        child = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                "from farjump.proxystore import *; FarjumpConnector('unix:../store').put(b'x')",
            ],
            cwd=f"{self.folder}/here",
            capture_output=True,
            timeout=2 * WATCHDOG,
        )
        self.assertEqual(child.returncode, 0, child.stderr)
        os.remove(f"{self.folder}/here/farjump.py")
        os.rmdir(f"{self.folder}/here")
