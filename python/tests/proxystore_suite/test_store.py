"""The serializer with NumPy, and the store with its proxies."""

import datetime
import gc
import os
import pickle
import threading
import weakref

import numpy

import farjump
from children import WithFolder
from farjump import _arrays
from farjump.proxystore import FarjumpConnector, FarjumpFactory, FarjumpStore, deserialize, serialize
from proxystore.connectors.local import LocalConnector
from proxystore.connectors.multi import MultiConnector, Policy
from proxystore.proxy import Proxy, ProxyResolveError, get_factory, is_resolved
from proxystore.serialize import SerializationError, serialize as default_serializer
from proxystore.store import Store, get_store, unregister_store
from proxystore.store.exceptions import NonProxiableTypeError, ProxyResolveMissingKeyError
from proxystore.store.factory import StoreFactory
from proxystore.store.lifetimes import ContextLifetime
from proxystore.store.ref import borrow, into_owned, update
from proxystore.store.utils import get_key, resolve_async


class Serializer(WithFolder):
    def test_arrays_of_numbers_are_their_bytes_behind_a_header(self):
        for array in (
            numpy.arange(12, dtype="f4").reshape(3, 4),
            numpy.zeros((2, 3, 4, 5), "c16"),
            numpy.array(7, "i8"),
            numpy.zeros((3, 0, 2), "u2"),
            numpy.array([True, False]),
        ):
            data = serialize(array)
            self.assertEqual(len(data), 64 + array.nbytes)
            self.assertEqual(data[64:], array.tobytes())
            back = deserialize(memoryview(data))
            self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
            numpy.testing.assert_array_equal(back, array)
        self.assertEqual(
            serialize(numpy.zeros((2, 3), "f4"))[:48],
            b"FJA1f\x04\x02\0" + b"".join(n.to_bytes(8, "little") for n in (2, 3, 0, 0, 24)),
        )

    def test_other_arrays_are_pickled(self):
        for array in (
            numpy.arange(12).reshape(3, 4)[:, ::2],
            numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
            numpy.arange(3, dtype=">i4"),
            numpy.zeros((1, 1, 1, 1, 1)),
            numpy.array([1.5], "f2"),
            numpy.array(["text", "more"]),
            numpy.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
            numpy.array(["2026-01-01"], "M8[D]"),
            numpy.array([None, {}], object),
            numpy.ma.masked_array([1, 2], [True, False]),
        ):
            data = serialize(array)
            self.assertEqual(data[:4], b"FJP1")
            back = deserialize(data)
            self.assertIs(type(back), type(array))
            self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
            numpy.testing.assert_array_equal(back, array)

    def test_arrays_are_views_that_hold_the_memory(self):
        for obj, of in ((numpy.arange(1000), lambda back: back), ({"a": numpy.arange(1000)}, lambda back: back["a"])):
            kept = numpy.frombuffer(serialize(obj), "u1").copy()
            held = weakref.ref(kept)
            array = of(deserialize(memoryview(kept).toreadonly()))
            self.assertTrue(numpy.shares_memory(array, kept))
            self.assertEqual(array.ctypes.data % 8, kept.ctypes.data % 8)
            with self.assertRaises(ValueError):
                array[0] = 1
            del kept
            self.assertIsNotNone(held())
            self.assertEqual(array[-1], 999)
            del array
            self.assertIsNone(held())

    def test_the_buffers_of_pickles_are_aligned(self):
        objects = [numpy.arange(number, dtype="u1") for number in (1, 63, 64, 65)]
        data = numpy.zeros(1024, "u1")
        at = -data.ctypes.data % 64
        raw = serialize(objects)
        data[at : at + len(raw)] = numpy.frombuffer(raw, "u1")
        for back, array in zip(deserialize(data[at : at + len(raw)]), objects):
            self.assertEqual(back.ctypes.data % 64, 0)
            numpy.testing.assert_array_equal(back, array)

    def test_what_pickle_cannot_is_left_to_cloudpickle(self):
        double = deserialize(serialize(lambda value: 2 * value))
        self.assertEqual(double(21), 42)
        with self.assertRaises(TypeError):
            serialize(threading.Lock())

    def test_cut_and_forged_headers_are_refused(self):
        good = serialize(numpy.arange(12, dtype="f4").reshape(3, 4))
        for length in (0, 3, 4, 63, 64, len(good) - 1):
            with self.assertRaises(ValueError, msg=length):
                deserialize(good[:length])
        for offset, value in (
            (4, b"O"),
            (4, b"V"),
            (4, b"\xff"),
            (5, b"\3"),
            (6, b"\5"),
            (8, b"\xff" * 8),
            (40, b"\0"),
        ):
            with self.assertRaises(ValueError, msg=(offset, value)):
                deserialize(good[:offset] + value + good[offset + len(value) :])
        pickled = serialize([numpy.arange(100), numpy.arange(100)])
        for length in range(4, len(pickled), 7):
            with self.assertRaises((ValueError, pickle.UnpicklingError, EOFError), msg=length):
                deserialize(pickled[:length])
        with self.assertRaisesRegex(ValueError, "no array"):
            _arrays.view(b"FJB1" + bytes(100))


    def test_what_proxystores_own_serializer_made_comes_back(self):
        for obj in (b"bytes", "text", numpy.arange(3), [1, None], lambda: 7):
            for buffer in (default_serializer(obj), memoryview(default_serializer(obj))):
                back = deserialize(buffer)
                self.assertIs(type(back), type(obj))
                if callable(obj):
                    self.assertEqual(back(), 7)
                else:
                    numpy.testing.assert_array_equal(back, obj)
        for wrong in (b"??\nx", b"05\n\x80"):
            with self.assertRaisesRegex(ValueError, "not made by"):
                deserialize(wrong)
        with self.assertRaises(SerializationError):
            deserialize(b"PK\nno pickle")


class Stores(WithFolder):
    def store(self, **options):
        """Makes a store, closed after the test."""
        return FarjumpStore(connector=self.connector(), **options)

    def test_objects_go_through_a_plain_store_and_ours(self):
        ours = self.store()
        plain = Store("plain", self.connector(), serializer=serialize, deserializer=deserialize)
        default = Store("default", self.connector())
        for obj in (b"bytes", "text", numpy.arange(3.0), {"a": [numpy.arange(3), 1]}, datetime.date(2026, 1, 1)):
            for putting, getting in ((ours, plain), (plain, ours), (ours, ours), (default, default)):
                back = getting.get(putting.put(obj))
                self.assertEqual(repr(back), repr(obj))
        self.assertEqual(ours.get(ours.put_batch([1, "two"])[1]), "two")

    def test_a_small_proxy_is_small(self):
        store = self.store()
        proxy = store.proxy(numpy.arange(3))
        message = pickle.dumps(proxy)
        # The rest is the handle with its address.
        self.assertLess(len(message) - len(get_key(proxy).handle), 140 + len(self.address))
        again = pickle.loads(message)
        self.assertFalse(is_resolved(again))
        self.assertIsInstance(get_factory(again), FarjumpFactory)
        self.assertEqual(again.sum(), 3)
        self.assertEqual(get_key(pickle.loads(pickle.dumps(again))), get_key(proxy))

    def test_a_resolved_array_is_the_owners_memory(self):
        store = self.store()
        key = store.put(numpy.arange(1000.0))
        first = pickle.loads(pickle.dumps(store.proxy_from_key(key))).__proxy_wrapped__
        second = pickle.loads(pickle.dumps(store.proxy_from_key(key))).__proxy_wrapped__
        self.assertFalse(first.flags.writeable)
        self.assertEqual(first.ctypes.data % 64, 0)
        self.assertTrue(numpy.shares_memory(first, second), "both are views of one object")
        store.evict(key)
        self.assertEqual(first.sum(), 499500.0)

    def test_a_proxy_is_that_of_proxystore(self):
        store = self.store(register=True, name="ours")
        self.addCleanup(unregister_store, "ours")
        proxy = store.proxy([1, 2], populate_target=True)
        self.assertTrue(is_resolved(proxy))
        self.assertIsInstance(get_factory(proxy), StoreFactory)
        fresh = pickle.loads(pickle.dumps(proxy))
        self.assertIsInstance(fresh, list)
        self.assertIs(get_store(fresh), store)
        resolve_async(fresh)
        self.assertEqual(fresh, [1, 2])
        self.assertEqual(get_factory(fresh).store_config.name, "ours")
        with ContextLifetime(store) as lifetime:
            held = store.proxy("held", lifetime=lifetime)
            key = get_key(held)
            kept = store.put("kept", lifetime=lifetime)
            self.assertTrue(store.exists(key) and store.exists(kept))
        self.assertFalse(store.exists(key) or store.exists(kept))
        owned = store.owned_proxy({"a": 1})
        key = get_key(owned)
        self.assertEqual(borrow(owned)["a"], 1)
        del owned
        self.assertFalse(store.exists(key))
        self.assertEqual(into_owned(store.proxy("x")), "x")
        one, none, two = store.proxy_batch(["a", None, "b"], skip_nonproxiable=True)
        self.assertEqual((one, none, two), ("a", None, "b"))
        self.assertIsInstance(store.locked_proxy("x").unlock(), Proxy)

    def test_an_owned_proxy_is_updated(self):
        store = self.store()
        owned = store.owned_proxy({"a": 1})
        copied = pickle.loads(pickle.dumps(store.proxy_from_key(get_key(owned))))
        owned["a"] = 2
        update(owned)
        self.assertEqual(copied, {"a": 2})
        self.assertIsNone(store.owned_proxy(None))
        populated = store.owned_proxy([1], populate_target=True)
        self.assertTrue(is_resolved(populated))
        put = into_owned(store.proxy([1]))
        put.append(2)
        with self.assertRaisesRegex(farjump.HandleError, "only a reserved one can be set"):
            update(put)
        # They evict their objects, so the store must still be open. An error holds one of them.
        del owned, populated, put
        gc.collect()

    def test_a_proxy_without_a_store_makes_one(self):
        message = pickle.dumps(self.store(name="made").proxy([1]))
        store = get_store(pickle.loads(message))
        self.addCleanup(store.close)
        self.assertIs(get_store("made"), store)
        self.assertIsInstance(store, FarjumpStore)

    def test_a_proxy_says_its_class_where_that_is_found_by_name(self):
        class Local(list):
            pass

        store = self.store()
        for obj in ([1], numpy.arange(3), datetime.date(2026, 1, 1), {"a": 1}):
            proxy = pickle.loads(pickle.dumps(store.proxy(obj, evict=True)))
            self.assertIsInstance(proxy, type(obj))
            self.assertFalse(is_resolved(proxy))
            self.assertEqual(str(proxy), str(obj))
        proxy = pickle.loads(pickle.dumps(store.proxy(Local([1]))))
        self.assertFalse(is_resolved(proxy))
        self.assertEqual(len(proxy), 1)

    def test_impossible_uses_of_a_store_raise_errors_with_the_reason(self):
        store = self.store()
        for obj in (None, True):
            with self.assertRaises(NonProxiableTypeError):
                store.proxy(obj)
            with self.assertRaises(NonProxiableTypeError):
                store.proxy_batch([obj])
            self.assertIs(store.proxy(obj, skip_nonproxiable=True), obj)
        with ContextLifetime(store) as lifetime:
            with self.assertRaisesRegex(ValueError, "exclude each other"):
                store.proxy("x", evict=True, lifetime=lifetime)
            with self.assertRaisesRegex(ValueError, "exclude each other"):
                store.proxy_from_key(store.put("x"), evict=True, lifetime=lifetime)
        with self.assertRaisesRegex(TypeError, "polling_intervals"):
            store.future(polling_intervals=1)
        once = store.proxy("once", evict=True)
        twice = pickle.loads(pickle.dumps(once))
        self.assertEqual(once, "once")
        with self.assertRaises(ProxyResolveError) as raised:
            str(twice)
        self.assertIsInstance(raised.exception.__cause__, ProxyResolveMissingKeyError)
        self.assertIn("populate_target=True", raised.exception.__cause__.__notes__[0])

    def test_other_serializers_and_metrics_use_the_factory_of_proxystore(self):
        for options in (
            {"serializer": pickle.dumps, "deserializer": pickle.loads},
            {"metrics": True},
        ):
            store = self.store(**options)
            proxy = store.proxy([1, 2])
            self.assertIs(type(get_factory(proxy)), StoreFactory)
            self.assertEqual(store.get(get_key(proxy)), [1, 2])
        store = self.store()
        proxy = store.proxy([3], serializer=pickle.dumps, deserializer=pickle.loads)
        self.assertIs(type(get_factory(proxy)), StoreFactory)
        self.assertEqual(pickle.loads(store.connector.get(get_key(proxy))), [3])

    def test_what_a_client_serialized_before_is_resolved(self):
        # Like the Dask client of proxystore-ex.
        store = self.store(register=True, name="before")
        proxy = store.proxy(default_serializer([1, 2]), serializer=lambda done: done, skip_nonproxiable=True)
        self.assertEqual(pickle.loads(pickle.dumps(get_factory(proxy)))(), [1, 2])
        unregister_store("before")

    def test_a_store_uses_any_connector_by_its_protocol(self):
        def multi():
            return MultiConnector(
                {
                    "shared": (self.connector(), Policy(min_size_bytes=1000, priority=1)),
                    "local": (LocalConnector(), Policy()),
                }
            )

        store = FarjumpStore("multi", multi(), register=True)
        for obj in ("small", numpy.arange(10_000)):
            proxy = store.proxy(obj)
            numpy.testing.assert_array_equal(store.get(get_key(proxy)), obj)
            self.assertEqual(len(proxy), len(obj))
            owned = store.owned_proxy(obj)
            self.assertTrue(store.exists(get_key(owned)))
            del owned
        self.assertEqual(store.proxy_batch(["a"])[0], "a")
        unregister_store("multi")
        with self.assertRaisesRegex(ValueError, "MultiConnector has no address .* give a name"):
            FarjumpStore(connector=multi())

    def test_a_future_waits_and_does_not_poll(self):
        store = self.store()
        future = store.future(polling_timeout=0.05)
        with self.assertRaises(ProxyResolveMissingKeyError):
            future.result()
        future = store.future(evict=True)
        proxy = pickle.loads(pickle.dumps(future.proxy()))
        self.assertFalse(future.done())
        setting = threading.Timer(0.1, future.set_result, ([1, 2],))
        setting.start()
        self.assertEqual(proxy, [1, 2])
        setting.join()
        self.assertFalse(future.done(), "it was evicted when it was used")
        evicted = store.future()
        store.evict(get_key(evicted.proxy()))
        with self.assertRaises(ProxyResolveMissingKeyError):
            evicted.result()

    def test_a_proxy_of_a_killed_owner_fails_to_resolve(self):
        store = self.store()
        message = pickle.dumps(store.proxy([1]))
        owner = self.owner()
        os.kill(owner, 9)
        self.gone(owner)
        with self.assertRaises(ProxyResolveError) as raised:
            len(pickle.loads(message))
        self.assertIsInstance(raised.exception.__cause__, farjump.PeerGone)
        with FarjumpConnector(self.address) as connector:
            with self.assertRaises(ProxyResolveError) as raised:
                len(pickle.loads(message))
            self.assertIsInstance(raised.exception.__cause__, ProxyResolveMissingKeyError)
            connector.close(clear=True)
