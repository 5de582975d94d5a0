"""Streams of handles: order, slow, late and dead subscribers and publishers."""

import gc
import signal
import tempfile
import threading
import time
import unittest

import farjump
from farjump._streams import FarjumpPublisher, FarjumpSubscriber
from support import WATCHDOG, python
from test_store import OWNER

PUBLISHER = (
    "import sys, farjump\n"
    "store = farjump.Store(sys.argv[1])\n"
    "publisher = store.publisher('topic')\n"
    "for number in range(int(sys.argv[2])):\n"
    "    publisher.publish_bytes(number.to_bytes(8, 'little'))\n"
    "print(publisher.number, flush=True)\n"
    "if sys.argv[3] == 'finish':\n"
    "    publisher.finish()\n"
    "else:\n"
    "    sys.stdin.read()\n"
)


class Streams(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="farjump-streams-")
        self.addCleanup(self.folder.cleanup)
        self.address = f"unix:{self.folder.name}/owner"
        self.owner = self.child(OWNER, self.address, str(16 << 20))
        self.assertEqual(self.owner.stdout.readline(), "ready\n")

    def child(self, script, *args):
        child = python(script, *args)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def store(self, **options):
        store = farjump.Store(self.address, **options)
        self.addCleanup(store.close)
        return store

    def test_items_come_in_order_from_other_processes(self):
        for mapped in [True, False]:
            store = self.store(mapped=mapped)
            with store.subscribe("topic", publishers=2) as subscriber:
                children = [self.child(PUBLISHER, self.address, "100", "finish") for _ in range(2)]
                got = {}
                for item in subscriber:
                    self.assertTrue(item.owned)
                    number = int.from_bytes(store.get(item.handle), "little")
                    got.setdefault(item.publisher, []).append(number)
                numbers = {int(child.communicate(timeout=WATCHDOG)[0]) for child in children}
                self.assertEqual(got, {number: list(range(100)) for number in numbers})
                self.assertEqual(subscriber.lost, 0)
                self.assertIsNone(subscriber.next(timeout=WATCHDOG))

    def test_a_killed_publisher_raises_publisher_gone_after_its_items(self):
        store = self.store()
        subscriber = store.subscribe("topic")
        child = self.child(PUBLISHER, self.address, "3", "wait")
        number = int(child.stdout.readline())
        child.kill()
        for expected in range(3):
            item = subscriber.next(timeout=WATCHDOG)
            self.assertEqual(int.from_bytes(store.get(item.handle), "little"), expected)
        with self.assertRaisesRegex(farjump.PublisherGone, "topic `topic`: .*without finishing") as raised:
            subscriber.next(timeout=WATCHDOG)
        self.assertEqual((raised.exception.publisher, raised.exception.published), (number, 3))
        self.assertIsInstance(raised.exception, ConnectionError)
        self.assertIsNone(subscriber.next(timeout=WATCHDOG))

    def test_a_block_that_raises_ends_its_publisher_without_finishing(self):
        store = self.store()
        subscriber = store.subscribe("topic")
        with self.assertRaises(ZeroDivisionError), store.publisher("topic") as publisher:
            publisher.publish_bytes(b"one")
            1 / 0
        self.assertTrue(publisher.closed)
        self.assertEqual(bytes(store.get(next(subscriber).handle)), b"one")
        with self.assertRaises(farjump.PublisherGone):
            next(subscriber)
        with store.publisher("topic") as publisher:
            publisher.publish_bytes(b"two")
        self.assertEqual([bytes(store.get(item.handle)) for item in subscriber], [b"two"])
        publisher.finish()
        publisher.close()
        with self.assertRaises(farjump.Closed):
            publisher.publish_bytes(b"three")
        subscriber.close()
        with self.assertRaises(farjump.Closed):
            subscriber.next(timeout=1)

    def test_a_killed_subscriber_holds_no_publisher_back(self):
        store = self.store()
        publisher = store.publisher("topic", capacity=1)
        child = self.child(
            "import sys, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "subscriber = store.subscribe('topic')\n"
            "item = subscriber.next()\n"
            "print('has it', flush=True)\n"
            "sys.stdin.read()\n",
            self.address,
        )
        handle = store.put(b"owned")
        publisher.give(handle)
        self.assertEqual(child.stdout.readline(), "has it\n")
        with self.assertRaisesRegex(farjump.StreamFull, "slowest subscriber"):
            publisher.publish_bytes(b"more", timeout=0.03)
        self.assertTrue(store.exists(handle))
        child.kill()
        publisher.publish_bytes(b"more", timeout=WATCHDOG)
        until = time.monotonic() + WATCHDOG
        while store.exists(handle) and time.monotonic() < until:
            time.sleep(0.001)
        self.assertFalse(store.exists(handle))

    def test_slow_subscribers_count_lost_items_and_late_ones_choose_their_start(self):
        store = self.store()
        publisher = store.publisher("topic", capacity=4, keep=2, overflow="drop-oldest")
        slow = store.subscribe("topic")
        for number in range(10):
            publisher.publish_bytes(bytes([number]))
        late, now = store.subscribe("topic"), store.subscribe("topic", from_now=True)
        publisher.finish()
        first = slow.next(timeout=WATCHDOG)
        self.assertEqual((first.lost, slow.lost, bytes(store.get(first.handle))), (6, 6, b"\x06"))
        self.assertEqual([bytes(store.get(item.handle)) for item in slow], [b"\x07", b"\x08", b"\x09"])
        self.assertEqual(len([item for item in late]), 4)
        self.assertEqual(list(now), [])

    def test_objects_of_others_stay_and_owned_ones_end_with_items(self):
        store = self.store()
        subscriber = store.subscribe("topic")
        mine, given = store.put(b"mine"), store.put(b"given")
        with store.publisher("topic") as publisher:
            publisher.publish(mine)
            publisher.give(given)
        items = list(subscriber)
        self.assertEqual([(item.handle, item.owned) for item in items], [(mine, False), (given, True)])
        self.assertEqual({item.publisher for item in items}, {publisher.number})
        subscriber.close()
        view = store.get(given)
        self.assertTrue(store.exists(given))
        items[1].release()
        items[1].release()
        self.assertFalse(store.exists(given))
        self.assertEqual(view, b"given")
        del items
        gc.collect()
        self.assertTrue(store.exists(mine))
        self.assertFalse(store.discard_topic("topic"))

    def test_a_wait_is_interrupted_and_loses_nothing(self):
        store = self.store()
        child = self.child(
            "import sys, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "subscriber = store.subscribe('topic')\n"
            "print('waits', flush=True)\n"
            "try:\n"
            "    next(subscriber)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', flush=True)\n"
            "print(bytes(store.get(next(subscriber).handle)))\n",
            self.address,
        )
        self.assertEqual(child.stdout.readline(), "waits\n")
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.stdout.readline(), "interrupted\n")
        store.publisher("topic").publish_bytes(b"item")
        self.assertEqual(child.communicate(timeout=WATCHDOG)[0], "b'item'\n")

    def test_threads_wait_without_the_gil_and_one_at_a_time(self):
        store = self.store()
        subscriber = store.subscribe("topic")
        got = []
        thread = threading.Thread(target=lambda: got.extend(subscriber))
        thread.start()
        publisher = store.publisher("topic")
        until = time.monotonic() + WATCHDOG
        while time.monotonic() < until:
            try:
                subscriber.next(timeout=0)
            except farjump.StreamError as error:
                self.assertIn("another call", str(error))
                break
            except farjump.TimedOut:
                # The thread had not started.
                time.sleep(0.001)
        else:
            self.fail("two threads had the subscriber at once")
        publisher.publish_bytes(b"one")
        publisher.finish()
        thread.join(WATCHDOG)
        self.assertEqual([bytes(store.get(item.handle)) for item in got], [b"one"])

    def test_a_forked_child_raises_forked_from_its_streams(self):
        child = self.child(
            "import os, sys, farjump\n"
            "store = farjump.Store(sys.argv[1])\n"
            "publisher, subscriber = store.publisher('topic'), store.subscribe('topic')\n"
            "publisher.publish_bytes(b'one')\n"
            "item = subscriber.next()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    told = 0\n"
            "    for call in [lambda: publisher.publish_bytes(b''), publisher.finish, subscriber.next]:\n"
            "        try:\n"
            "            call()\n"
            "        except farjump.Forked:\n"
            "            told += 1\n"
            "    del item, publisher, subscriber\n"
            "    os._exit(told)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
            "assert bytes(store.get(item.handle)) == b'one'\n"
            "publisher.finish()\n"
            "assert subscriber.next() is None\n"
            "print('ok')\n",
            self.address,
        )
        self.assertEqual(child.communicate(timeout=WATCHDOG)[0], "ok\n")

    def test_messages_pass_by_the_protocols_of_proxystore(self):
        messages = [bytes([number]) * number * 1000 for number in range(100)]
        with FarjumpSubscriber(self.address, "one", timeout=WATCHDOG) as one:
            got = []
            thread = threading.Thread(target=lambda: got.extend(one))
            thread.start()
            with FarjumpPublisher(self.address, capacity=4, timeout=WATCHDOG) as publisher:
                publisher.send_message("two", b"of another topic")
                for message in messages:
                    publisher.send_message("one", message)
            thread.join(WATCHDOG)
            self.assertEqual(got, messages)
            with self.assertRaises(StopIteration):
                one.next_message()
        with FarjumpSubscriber(self.address, "two", timeout=WATCHDOG) as two:
            self.assertEqual(list(two), [b"of another topic"])
        publisher.close()
        one.close()
        with self.assertRaises(farjump.Closed):
            publisher.send_message("one", b"")
        with self.assertRaises(farjump.Closed):
            one.next_message()
        with FarjumpSubscriber(self.address, "three", timeout=0.01) as three:
            with self.assertRaises(farjump.TimedOut):
                next(three)
        with self.assertRaises(farjump.StreamError):
            FarjumpSubscriber(self.address, "")

    def test_wrong_arguments_are_refused_in_words(self):
        store = self.store()
        for error, why, call in [
            (farjump.StreamError, "give it 1 to 255", lambda: store.publisher("")),
            (farjump.StreamError, "give it 1 to 255", lambda: store.subscribe("x" * 256)),
            (farjump.StreamError, "capacity must be", lambda: store.publisher("topic", capacity=0)),
            (farjump.StreamError, "capacity must be", lambda: store.publisher("topic", keep=1 << 20)),
            (ValueError, "overflow: `block` is unknown: write wait", lambda: store.publisher("topic", overflow="block")),
            (ValueError, "capacity: `-1` is no whole number", lambda: store.publisher("topic", capacity=-1)),
            (ValueError, "publishers: `4294967296` is no", lambda: store.subscribe("topic", publishers=1 << 32)),
            (TypeError, "from_now is of type bytes: give a bool or a str", lambda: store.subscribe("topic", from_now=b"no")),
            (TypeError, "kept is no option of a publisher: did you mean `keep`", lambda: store.publisher("topic", kept=1)),
        ]:
            with self.assertRaisesRegex(error, why):
                call()
        publisher = store.publisher("topic", capacity=3)
        with self.assertRaisesRegex(farjump.StreamError, "capacity of 3"):
            store.publisher("topic", capacity=4)
        with self.assertRaisesRegex(farjump.StreamError, "let them end"):
            store.discard_topic("topic")
        for wrong in [b"", None, "handle", 1]:
            with self.assertRaises(TypeError):
                publisher.publish(wrong)
        with self.assertRaises(TypeError):
            publisher.publish_bytes("text")
        with self.assertRaises(ValueError):
            publisher.publish_bytes(b"", timeout=-1)
        with self.assertRaises(farjump.TimedOut):
            store.subscribe("topic").next(timeout=0.01)
        for made in [farjump.Publisher, farjump.Subscriber, farjump.Item]:
            with self.assertRaises(TypeError):
                made()
        self.owner.kill()
        with self.assertRaises(farjump.PeerGone):
            publisher.publish_bytes(b"one", timeout=WATCHDOG)


if __name__ == "__main__":
    unittest.main()
