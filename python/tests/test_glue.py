"""The routine around functions of Numba's: malformed payloads and objects, and new objects.

It runs in a forked child, as `farjump_panic` does not return. Payloads end where accessible memory ends.
"""

import ctypes
import mmap
import os
import random
import signal
import struct
import unittest

import farjump
from support import WATCHDOG

try:
    import numpy as np
    from llvmlite import binding as llvm

    import farjump._arrays as arrays
    from farjump._compile import glue as _glue
    from farjump._compile import numba as _numba
    from farjump._compile.glue import Variant
except ImportError as error:
    raise unittest.SkipTest(f"there is no Numba ({error})")

PAGE = mmap.PAGESIZE
SERVICES = {
    "farjump_reply": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    "farjump_panic": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t),
    "farjump_object": ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
    ),
    "farjump_new_object": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)),
    "farjump_again": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
}


class Handle:
    """A stand-in for an object of the target."""

    def __init__(self, name):
        self.name = name

    def __farjump_handle__(self):
        return self.name


class Guarded:
    """Bytes before a page that cannot be accessed."""

    def __init__(self, contents):
        pages = -(-max(len(contents), 1) // PAGE)
        self.memory = mmap.mmap(-1, (pages + 1) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(start + pages * PAGE), ctypes.c_size_t(PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = start + pages * PAGE - len(contents)
        ctypes.memmove(self.address, bytes(contents), len(contents))


def padded(payload):
    """Pads a payload to a multiple of 16 bytes, so that it starts at one."""
    return bytes(payload) + bytes(-len(payload) % 16)


class Call:
    """The target of one call."""

    def __init__(self, pipe, objects, sizes, room, spilled, repeats):
        self.pipe, self.sizes, self.room, self.spilled, self.repeats = pipe, sizes, room, spilled, repeats
        self.objects = {name: Guarded(contents) for name, contents in objects.items()}
        self.replied, self.output, self.asked = b"", None, None

    def reply(self, start, size):
        self.replied += ctypes.string_at(start, size)
        return 0

    def panic(self, start, size):
        os.write(self.pipe, b"P" + ctypes.string_at(start, size))
        os._exit(0)

    def object(self, handle, size, data, length):
        name = ctypes.string_at(handle, size)
        if name == self.spilled:
            return -8
        if name not in self.objects:
            return -4
        data[0], length[0] = self.objects[name].address, self.sizes[name]
        return 0

    def again(self, payload, size):
        if not self.repeats:
            return -5
        self.asked = ctypes.string_at(payload, size)
        return 0

    def new_object(self, length, data):
        if self.spilled == b"output":
            return -8
        if length > self.room:
            return -6
        # Like memory with earlier contents.
        self.output, self.length = Guarded(b"\xaa" * (length + -length % 64)), length
        data[0] = self.output.address
        return 0

    def made(self):
        return ctypes.string_at(self.output.address, self.length) if self.output else b""


class Glue(unittest.TestCase):
    def setUp(self):
        self.sum = farjump.ifunc("i4[:, ::1], i4[::1], i4 -> i8")(lambda rows, more, n: rows.sum() + more.sum() + n)
        self.derived = farjump.ifunc("i4[:, ::1], i4, out i4[:, ::1] -> none")(derived)

    @classmethod
    def setUpClass(cls):
        # Functions compiled for this process, with the names that they import.
        cls.compiled, cls.call = {}, None
        bodies = (
            lambda *args: cls.call.reply(*args),
            lambda *args: cls.call.panic(*args),
            lambda *args: cls.call.object(*args),
            lambda *args: cls.call.new_object(*args),
            lambda *args: cls.call.again(*args),
        )
        cls.services = [kind(body) for kind, body in zip(SERVICES.values(), bodies)]
        for name, service in zip(SERVICES, cls.services):
            llvm.add_symbol(name, ctypes.cast(service, ctypes.c_void_p).value)

    def main(self, function, variant):
        """Returns the routine, and the names that it imports."""
        key = function.name, function.signature.text, variant
        if key not in self.compiled:
            done = _numba.compiled(function._function, function.signature, function._options)
            module = _numba.reduced("f", function.signature, done, variant, 0)
            imports = {one.name for one in module.functions if one.is_declaration and "llvm." not in one.name}
            engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
            engine.finalize_object()
            self.compiled[key] = engine, imports
        engine, imports = self.compiled[key]
        routine = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        return routine(engine.get_function_address("f_main")), imports

    def run_in_child(self, function, variant, payload, objects=None, room=1 << 20, spilled=None, repeats=True):
        """Returns the outcome of a call: ("reply", bytes, made), ("ended", code) or ("again", payload). Anything else fails."""
        main, _ = self.main(function, variant)
        read, write = os.pipe()
        call = type(self).call = Call(write, objects or {}, getattr(self, "sizes", {}), room, spilled, repeats)
        pid = os.fork()
        if pid == 0:
            signal.alarm(WATCHDOG)
            try:
                guarded = Guarded(payload)
                main(guarded.address, len(payload), None)
                if call.asked is not None:
                    os.write(write, b"A" + call.asked + call.replied)
                    os._exit(0)
                os.write(write, b"R" + struct.pack("<Q", len(call.replied)) + call.replied + call.made())
                os._exit(0)
            finally:
                os._exit(3)
        os.close(write)
        with open(read, "rb") as output:
            told = output.read()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, payload)
        if told[:1] == b"P":
            code = _glue.code_in(told[1:].decode())
            self.assertIsNotNone(code, told)
            return "ended", code
        if told[:1] == b"A":
            return "again", told[1:]
        (length,) = struct.unpack_from("<Q", told, 1)
        return "reply", told[9 : 9 + length], told[9 + length :]

    def objects(self, **named):
        """Returns objects by their handles."""
        named = {name.encode(): bytes(contents) for name, contents in named.items()}
        self.sizes = {name: len(contents) for name, contents in named.items()}
        # Padded, so that each starts at a multiple of 64 as in a store.
        return {name: contents + bytes(-len(contents) % 64) for name, contents in named.items()}

    def test_variants_import_what_they_use(self):
        expected = {
            Variant.PLAIN: {"farjump_reply", "farjump_panic"},
            Variant.OBJECTS: {"farjump_reply", "farjump_panic", "farjump_object", "farjump_again"},
        }
        for variant, names in expected.items():
            self.assertEqual(self.main(self.sum, variant)[1], names)
        names = {"farjump_panic", "farjump_object", "farjump_new_object", "farjump_again"}
        self.assertEqual(self.main(self.derived, Variant.DERIVE)[1], names)

    def test_neither_exceptions_nor_paths_travel(self):
        function = farjump.ifunc("i4 -> i4")(raising)
        done = _numba.compiled(raising, function.signature, function._options)
        self.assertEqual([(kind, words) for kind, words, _ in done.exceptions], [(ValueError, ("these words",))])
        machine = _numba._machine(0)
        before = machine.emit_object(llvm.parse_assembly(_numba._compile(raising, function.signature, {}).library.get_llvm_str()))
        self.assertIn(b"these words", before)
        self.assertIn(b"test_glue", before)
        after = machine.emit_object(_numba.reduced("f", function.signature, done, Variant.PLAIN, 0))
        self.assertNotIn(b"these words", after)
        self.assertNotIn(b"test_glue", after)
        self.assertEqual(self.run_in_child(function, Variant.PLAIN, function.signature.payload((1,))[0]), ("ended", 0))

    def test_arguments_lie_in_the_payload_or_in_objects(self):
        rows, more = np.arange(6, dtype="i4").reshape(2, 3), np.arange(4, dtype="i4")
        payload, has_handle = self.sum.signature.payload((rows, more, 5))
        self.assertFalse(has_handle)
        expected = ("reply", (15 + 6 + 5).to_bytes(8, "little"), b"")
        self.assertEqual(self.run_in_child(self.sum, Variant.PLAIN, padded(payload)), expected)
        self.assertEqual(self.run_in_child(self.sum, Variant.OBJECTS, padded(payload)), expected)
        payload, has_handle = self.sum.signature.payload((Handle(b"rows"), more, 5))
        self.assertTrue(has_handle)
        objects = self.objects(rows=arrays.header(rows) + rows.tobytes())
        self.assertEqual(self.run_in_child(self.sum, Variant.OBJECTS, padded(payload), objects), expected)
        # A target without a store gets the other variant. This one would refuse the payload.
        self.assertEqual(self.run_in_child(self.sum, Variant.PLAIN, padded(payload)), ("ended", 10_001))

    def test_objects_that_are_no_such_array_are_refused_by_reason(self):
        rows = np.arange(6, dtype="i4").reshape(2, 3)
        good = arrays.header(rows) + rows.tobytes()
        payload, _ = self.sum.signature.payload((Handle(b"rows"), rows[0], 5))
        cases = (
            (2, good[:63]),
            (2, b"FJA2" + good[4:]),
            (3, arrays.header(rows.astype("f4")) + good[64:]),
            (3, arrays.header(rows.reshape(-1)) + good[64:]),
            (4, good[:-1]),
            (4, good[:8] + struct.pack("<2Q", 2, 4) + good[24:]),
            (4, good[:8] + struct.pack("<2Q", 2**63, 2) + good[24:]),
            (4, good[:8] + struct.pack("<2Q", 0, 2**63) + good[24:]),
            (4, good[:40] + struct.pack("<Q", 2**64 - 1) + good[48:]),
        )
        for reason, contents in cases:
            with self.subTest(reason, contents=contents):
                found = self.run_in_child(self.sum, Variant.OBJECTS, padded(payload), self.objects(rows=contents))
                self.assertEqual(found, ("ended", 10_000 + reason))
        self.assertEqual(self.run_in_child(self.sum, Variant.OBJECTS, padded(payload)), ("ended", 10_000 + 20 + 4))

    def test_reasons_become_sentences_that_name_the_argument(self):
        _, results = self.sum._built(Variant.OBJECTS)
        for code, words in ((10_103, "`more` of `<lambda>` is an array, but none of type i4"), (10_024, "`rows`.* gone")):
            panicked = farjump.Panicked("panicked")
            panicked.ifunc, panicked.message = "f", f"ended with code {code}"
            error = results.error(panicked)
            self.assertRegex(str(error), words)
            self.assertIsInstance(error, farjump.Error)
        for message in ("ended with code 99999", "ended with code 09999", "ended with code 00000"):
            panicked.message = message
            self.assertIn("could not name", str(results.error(panicked)))
        panicked.message = "of another function"
        self.assertIs(results.error(panicked), panicked)

    def test_an_output_is_a_new_object_with_its_header(self):
        rows = np.arange(6, dtype="i4").reshape(2, 3)
        payload, _ = self.derived.signature.payload((rows, 10))
        kind, reply, made = self.run_in_child(self.derived, Variant.DERIVE, padded(payload))
        self.assertEqual((kind, reply), ("reply", b""))
        self.assertEqual(made[:64], arrays.header(rows))
        np.testing.assert_array_equal(arrays.view(made), rows + 10)
        payload, _ = self.derived.signature.payload((Handle(b"rows"), 1), (3, 4))
        objects = self.objects(rows=arrays.header(rows) + rows.tobytes())
        _, _, made = self.run_in_child(self.derived, Variant.DERIVE, padded(payload), objects)
        self.assertEqual(arrays.view(made).tolist(), [[1, 2, 3, -1], [4, 5, 6, -1], [-1, -1, -1, -1]])
        for room, shape, reason in ((64, (1, 1), 26), (1 << 20, (2**40, 2**20), 6)):
            payload, _ = self.derived.signature.payload((rows, 1), (0, 0))
            changed = bytes(payload).replace(struct.pack("<QQQQQ", 3, 0, 0, 0, 0), struct.pack("<QQQQQ", 3, 0, 0, *shape))
            found = self.run_in_child(self.derived, Variant.DERIVE, padded(changed), room=room)
            self.assertEqual(found, ("ended", 10_200 + reason))

    def test_a_call_for_which_the_store_uses_its_file_runs_again(self):
        rows = np.arange(6, dtype="i4").reshape(2, 3)
        objects = self.objects(rows=arrays.header(rows) + rows.tobytes())
        calls = (
            (self.sum, Variant.OBJECTS, b"rows", self.sum.signature.payload((Handle(b"rows"), rows[0], 5))[0], 10_028),
            (self.derived, Variant.DERIVE, b"rows", self.derived.signature.payload((Handle(b"rows"), 1))[0], 10_028),
            (self.derived, Variant.DERIVE, b"output", self.derived.signature.payload((rows, 1))[0], 10_228),
        )
        for function, variant, spilled, payload, code in calls:
            payload = padded(payload)
            found = self.run_in_child(function, variant, payload, objects, spilled=spilled)
            self.assertEqual(found, ("again", payload), "with the same payload, and without a reply")
            found = self.run_in_child(function, variant, payload, objects, spilled=spilled, repeats=False)
            self.assertEqual(found, ("ended", code))

    def test_an_output_needs_derive_and_a_shape_that_fits(self):
        rows = np.zeros((2, 3), "i4")
        with self.assertRaisesRegex(TypeError, "has the output `result`.* farjump.derive"):
            self.derived._farjump_call((rows, 1))
        with self.assertRaisesRegex(TypeError, "has no output"):
            self.sum._derive()
        for shape, words in (((1,), "does not fit"), ((-1, 2), "does not fit"), ((2**40, 2**30), "larger than any memory")):
            with self.assertRaisesRegex(ValueError, words):
                self.derived._derive(shape)._farjump_call((rows, 1))
        other = farjump.ifunc("i4[::1], out i4[:, ::1] -> none")(derived_from_one)
        with self.assertRaisesRegex(TypeError, r"state its dimensions, shape="):
            other._derive()._farjump_call((rows[0],))
        self.assertEqual(other._derive((2, 2))._farjump_call((rows[0],))[0].name, "derived_from_one")
        self.assertEqual(self.derived._derive_library().name, "derived")

    def test_any_payload_is_refused_or_run(self):
        rows, chance = np.arange(6, dtype="i4").reshape(2, 3), random.Random(4)
        objects = self.objects(rows=arrays.header(rows) + rows.tobytes())
        whole, _ = self.sum.signature.payload((Handle(b"rows"), rows[0], 5))
        ended = 0
        for case in range(120):
            payload = bytearray(padded(whole))
            if case % 4 == 0:
                payload = payload[: chance.randrange(len(payload))]
            for _ in range(chance.randrange(1, 4)):
                if len(payload) >= 8:
                    at = 8 * chance.randrange(len(payload) // 8)
                    number = chance.choice((0, 1, 2, 3, 5, 2**31, 2**32 + 1, 2**61, 2**62, 2**63, 2**64 - 1, 2**64 - 64))
                    payload[at : at + 8] = number.to_bytes(8, "little")
            damaged = dict(objects)
            if case % 3 == 0:
                contents = bytearray(damaged[b"rows"])
                at = 8 * chance.randrange(8)
                contents[at : at + 8] = chance.choice((0, 1, 2**62, 2**63, 2**64 - 1)).to_bytes(8, "little")
                damaged[b"rows"] = contents
            ended += self.run_in_child(self.sum, Variant.OBJECTS, bytes(payload), damaged)[0] == "ended"
        self.assertGreater(ended, 60)


def derived(rows, n, result):
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            result[i, j] = -1
            if i < rows.shape[0] and j < rows.shape[1]:
                result[i, j] = rows[i, j] + n


def raising(n):
    if n > 0:
        raise ValueError("these words")
    return n


def derived_from_one(row, result):
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            result[i, j] = row[0]


class Arrays(unittest.TestCase):
    def test_headers_of_every_type_and_rank_are_parsed(self):
        for code in ("b1", "i1", "i8", "u2", "u4", "f4", "f8", "c8", "c16"):
            for shape in ((), (3,), (0,), (2, 3), (2, 0, 4), (1, 2, 3, 4)):
                array = np.arange(24)[: int(np.prod(shape))].reshape(shape).astype(code)
                packed = arrays.header(array) + array.tobytes()
                found = arrays.view(packed)
                self.assertEqual((found.dtype, found.shape, arrays.parse(packed).offset), (array.dtype, shape, 64))
                np.testing.assert_array_equal(found, array)
                self.assertFalse(found.flags.writeable)
        self.assertTrue(arrays.view(bytearray(arrays.header(np.zeros(2)) + bytes(16))).flags.writeable)

    def test_arrays_that_are_no_objects_are_refused(self):
        for array, error in (
            (np.array(["text"]), TypeError),
            (np.array([None]), TypeError),
            (np.zeros(2, ">f4"), TypeError),
            (np.zeros(2, "f2"), TypeError),
            (np.zeros(2, "M8[s]"), TypeError),
            (np.zeros((1, 1, 1, 1, 1)), ValueError),
            (np.zeros((4, 4))[:, 1], ValueError),
        ):
            with self.subTest(array), self.assertRaises(error):
                arrays.header(array)

    def test_damaged_headers_are_refused_by_name(self):
        good = arrays.header(np.zeros((2, 3))) + bytes(48)
        for at, changed, words in (
            (0, b"FJA2", "does not start with FJA1"),
            (4, b"O", "items of kind 'O'"),
            (4, b"\xff", "items of kind"),
            (5, b"\x02", "2 bytes"),
            (6, b"\x05", "mean nothing"),
            (6, b"\x01", "mean nothing"),
            (7, b"\x01", "mean nothing"),
            (63, b"\x01", "mean nothing"),
            (8, struct.pack("<Q", 2**62), "dimensions"),
            (8, struct.pack("<QQ", 0, 2**63), "dimensions"),
            (40, struct.pack("<Q", 47), "dimensions"),
        ):
            with self.subTest(at, changed=changed), self.assertRaisesRegex(ValueError, words):
                arrays.view(good[:at] + changed + good[at + len(changed) :])
        for length in (0, 63, 64, 111):
            with self.assertRaises(ValueError):
                arrays.view(good[:length])
        self.assertEqual(arrays.view(good + b"more").shape, (2, 3))


if __name__ == "__main__":
    unittest.main()
