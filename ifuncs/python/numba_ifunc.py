#!/usr/bin/env python3
"""Turns a Python function into an ifunc library of farjump, by Numba.

    numba_ifunc.py nearest.py:nearest 'int64(float32[::1], float32[::1])' -o libnearest.so

The library has machine code and bitcode, and needs no Python at the target. Numba compiles the function for
arguments of the given types: numbers, and one-dimensional arrays without gaps (`[::1]`). What needs Numba's runtime
is refused by name: arrays that are made in the function, strings, lists, printing. Functions of libm have to be
offered by the target (`farjump serve --export-library libm.so.6`).

A payload has the arguments in their order, each at a multiple of 8 bytes: a number in 8 bytes, an array as the
number of its items in 8 bytes and then its items. `pack` makes one:

    import numba_ifunc
    payload = numba_ifunc.pack("int64(float32[::1], float32[::1])", matrix, query)

The reply is the result in as many bytes as its type has, and nothing for `none`. What the function raises ends the call:
its source gets the exception as text.

Needs numba 0.60 or newer (`pip install numba`) and the program `farjump`.
"""

import argparse
import importlib.util
import inspect
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tempfile

# Numba compiles for this machine's CPU, with vectors of its width, unless it is told otherwise before it is imported.
os.environ.update(
    NUMBA_CPU_NAME="generic",
    NUMBA_CPU_FEATURES="",
    NUMBA_LOOP_VECTORIZE="0",
    NUMBA_SLP_VECTORIZE="0",
    NUMBA_DISABLE_INTEL_SVML="1",
    NUMBA_DISABLE_JIT="0",
)

import numba  # noqa: E402
from llvmlite import binding as llvm  # noqa: E402
from numba.core import sigutils, types  # noqa: E402

#: Symbols of Python's and of Numba's runtime, which no target has, and what in a function needs them.
RUNTIME = {
    "NRT_": "it allocates memory: make no arrays, lists or strings in it, and write results into one of its arguments",
    "Py": "it uses Python objects",
    "numba_gil": "it uses Python objects",
    "numba_rnd": "it draws random numbers",
    **dict.fromkeys(("numba_xx", "numba_xg", "numba_ez_"), "it is Numba's call of BLAS or LAPACK, as for `np.dot`: write a loop"),
    "numba_attempt_nocopy_reshape": "it is a helper for `np.max`, `np.min`, `ravel` and `reshape`: write a loop",
    "numba_": "it calls a function of Numba's runtime",
    "_Py": "it uses Python objects",
}


class Refused(Exception):
    """The function cannot become an ifunc; the text says why."""


def items_of(signature):
    """Returns the types of the arguments, and that of the result.

    Raises Refused for types that a payload cannot have.
    """
    arguments, result = sigutils.normalize_signature(signature)
    if result is None:
        raise Refused(f"`{signature}` has no type for the result: write it as in 'int64(float32[::1])'")
    for kind in arguments:
        item = kind.dtype if isinstance(kind, types.Array) else kind
        if isinstance(kind, types.Array) and (kind.ndim != 1 or kind.layout != "C"):
            raise Refused(f"`{kind}` is no array of one dimension without gaps: write it as {item}[::1]")
        if not is_number(item):
            raise Refused(f"`{kind}` is neither a number nor an array of numbers")
    if not (is_number(result) or result == types.none):
        raise Refused(f"the result is a `{result}`: it can be a number, or none")
    return arguments, result


def is_number(kind):
    return isinstance(kind, (types.Integer, types.Float, types.Boolean))


def width(kind):
    """Bytes of a number."""
    return 1 if isinstance(kind, types.Boolean) else kind.bitwidth // 8


def code(kind):
    """The format of a number for `struct`."""
    if isinstance(kind, types.Boolean):
        return "?"
    if isinstance(kind, types.Float):
        return {4: "f", 8: "d"}[width(kind)]
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}[width(kind)]
    return letter if kind.signed else letter.upper()


def pack(signature, *arguments):
    """Returns the payload with these arguments: numbers, and objects with the buffer protocol."""
    kinds, _ = items_of(signature)
    if len(kinds) != len(arguments):
        raise TypeError(f"`{signature}` has {len(kinds)} arguments, and there are {len(arguments)}")
    payload = b""
    for kind, argument in zip(kinds, arguments):
        if isinstance(kind, types.Array):
            view = memoryview(argument)
            if view.format != code(kind.dtype) and view.format not in same_as(code(kind.dtype)):
                raise TypeError(f"an argument has items of format {view.format!r}, and `{kind}` has others")
            payload += struct.pack("<Q", view.nbytes // width(kind.dtype)) + view.tobytes()
        else:
            payload += struct.pack("<" + code(kind), argument)
        payload += bytes(-len(payload) % 8)
    return payload


def same_as(letter):
    """Formats of the same numbers: C's long is its long long here."""
    return {"q": "l", "Q": "L"}.get(letter, "")


def compiled(function, signature):
    """Returns the text of the function's module, and the function's name in it.

    Raises Refused for what Numba does not compile.
    """
    options = dict(error_model="python", boundscheck=False, no_cfunc_wrapper=True, no_cpython_wrapper=True)
    # Without its runtime Numba says at once what cannot be. The option is Numba's own: newer versions may lack it.
    for more in ({"_nrt": False}, {}):
        try:
            dispatcher = numba.njit([signature], **options, **more)(function)
            result = next(iter(dispatcher.overloads.values()))
            return result.library.get_llvm_str(), result.fndesc.llvm_func_name
        except KeyError:
            continue
        except numba.core.errors.NumbaError as error:
            text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
            if "NRT required" in text:
                raise Refused(f"`{function.__name__}` allocates memory: {RUNTIME['NRT_']}") from error
            raise Refused(f"Numba does not compile `{function.__name__}`: {text}") from error
    raise Refused("this version of Numba takes none of the options that are needed")


#: A constant of Numba's: a pickled exception, or its hash. Its name ends with the hash of what it holds.
PICKLED = re.compile(r'^(@\.const\.pickledata\.(\w+)(\.sha1)? = .*?\[\d+ x i8\]) c"((?:[^"\\]|\\.)*)"', re.M)


def raised(module_text):
    """The exceptions in a module: the names of the constants by which it raises them, and their texts."""
    texts = {}
    for _, key, is_hash, data in PICKLED.findall(module_text):
        if is_hash:
            continue
        data = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda byte: bytes([int(byte[1], 16)]), data.encode())
        try:
            kind, arguments, place = pickle.loads(data)
            words = ", ".join(map(str, arguments or ()))
            text = f"{kind.__name__}: {words}" if words else kind.__name__
            # Numba notes no place for a division.
            texts[f".const.picklebuf.{key}"] = f"{text} (line {place[2]})" if place else text
        except Exception:  # noqa: BLE001 - a text for people: any other one will do
            texts[f".const.picklebuf.{key}"] = "an exception"
    return texts


def without_pickles(module_text):
    """The module without the contents of its exceptions, which name the author's file."""
    return PICKLED.sub(r"\1 zeroinitializer", module_text)


def llvm_type(kind):
    if isinstance(kind, types.Float):
        return {4: "float", 8: "double"}[width(kind)]
    return f"i{8 * width(kind)}"


def constant(name, text):
    """A constant of the module with a text."""
    data = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02x}" for b in text.encode())
    return f'@{name} = private unnamed_addr constant [{len(text.encode())} x i8] c"{data}"\n'


def glue(name, inner, kinds, result, exceptions):
    """Returns the text of the ifunc's routines around the compiled function."""
    constants = [constant("farjump.short", "the payload is shorter than its arguments")]
    main, passed, at = [], ["ptr %ret", "ptr %exception"], "0"
    for number, kind in enumerate(kinds):
        n = f"{number}"
        main += [
            f"  %head{n} = add i64 {at}, 8",
            f"  %room{n} = icmp ule i64 %head{n}, %size",
            f"  br i1 %room{n}, label %has{n}, label %short",
            f"has{n}:",
            f"  %at{n} = getelementptr i8, ptr %payload, i64 {at}",
        ]
        if not isinstance(kind, types.Array):
            kind_name = llvm_type(kind)
            main += [f"  %value{n} = load volatile {kind_name}, ptr %at{n}, align 8"]
            # Booleans are bytes for Numba, too.
            passed.append(f"{kind_name} %value{n}")
            at = f"%head{n}"
            continue
        size = width(kind.dtype)
        # The number is read once: the payload may be memory that its source still writes.
        main += [
            f"  %count{n} = load volatile i64, ptr %at{n}, align 8",
            f"  %left{n} = sub i64 %size, %head{n}",
            f"  %most{n} = udiv i64 %left{n}, {size}",
            f"  %fits{n} = icmp ule i64 %count{n}, %most{n}",
            f"  br i1 %fits{n}, label %whole{n}, label %short",
            f"whole{n}:",
            f"  %bytes{n} = mul i64 %count{n}, {size}",
            f"  %up{n} = add i64 %bytes{n}, 7",
            f"  %padded{n} = and i64 %up{n}, -8",
            f"  %next{n} = add i64 %head{n}, %padded{n}",
            f"  %data{n} = getelementptr i8, ptr %payload, i64 %head{n}",
        ]
        passed += ["ptr null", "ptr null", f"i64 %count{n}", f"i64 {size}", f"ptr %data{n}", f"i64 %count{n}", f"i64 {size}"]
        at = f"%next{n}"
    reply = ""
    if result != types.none:
        reply = f"  %replied = call i32 @farjump_reply(ptr %ret, i64 {width(result)})\n"
    raises = []
    for number, (global_name, text) in enumerate(exceptions.items()):
        constants.append(constant(f"farjump.raised{number}", text))
        raises += [
            f"  %is{number} = icmp eq ptr %info, @{global_name}",
            f"  br i1 %is{number}, label %raise{number}, label %not{number}",
            f"raise{number}:",
            f"  call void @farjump_panic(ptr @farjump.raised{number}, i64 {len(text.encode())})",
            "  unreachable",
            f"not{number}:",
        ]
    constants.append(constant("farjump.raised", "the function raised an exception"))
    return "".join(constants) + f"""
declare i32 @farjump_reply(ptr, i64)
declare void @farjump_panic(ptr, i64) noreturn
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

@{name}_copy_args = constant i32 1, section ".farjump.copy_args"

define i64 @{name}_payload_get_max_size(ptr %args, i64 %size) {{
  ret i64 %size
}}

define i32 @{name}_payload_init(ptr %payload, i64 %space, ptr %args, i64 %size) {{
  %room = icmp uge i64 %space, %size
  br i1 %room, label %copy, label %refuse
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %payload, ptr %args, i64 %size, i1 false)
  ret i32 0
refuse:
  ret i32 -1
}}

define void @{name}_main(ptr %payload, i64 %size, ptr %target) {{
entry:
  %ret = alloca [16 x i8], align 16
  %exception = alloca ptr, align 8
  store ptr null, ptr %exception, align 8
  br label %begin
begin:
{chr(10).join(main)}
  %status = call i32 @{inner}({", ".join(passed)})
  switch i32 %status, label %raised [ i32 0, label %done
                                      i32 -2, label %done ]
done:
{reply}  ret void
raised:
  %info = load ptr, ptr %exception, align 8
{chr(10).join(raises)}
  call void @farjump_panic(ptr @farjump.raised, i64 32)
  unreachable
short:
  call void @farjump_panic(ptr @farjump.short, i64 41)
  unreachable
}}
"""


def forms(function, signature, name):
    """Returns machine code, as an object for any CPU of this machine's kind, and bitcode.

    Raises Refused.
    """
    kinds, result = items_of(signature)
    try:
        inspect.signature(function).bind(*kinds)
    except TypeError as error:
        raise Refused(f"`{function.__name__}` does not take the {len(kinds)} arguments of `{signature}`: {error}") from error
    text, inner = compiled(function, signature)
    quoted = f'"{inner}"' if not re.fullmatch(r"[\w.$]+", inner) else inner
    module = llvm.parse_assembly(without_pickles(text) + glue(name, quoted, kinds, result, raised(text)))
    module.name = name
    module.verify()
    routines = {f"{name}_main", f"{name}_payload_get_max_size", f"{name}_payload_init", f"{name}_copy_args"}
    for symbol in list(module.functions) + list(module.global_variables):
        if not symbol.is_declaration and symbol.name not in routines:
            symbol.linkage = "internal"
    target = llvm.Target.from_triple(module.triple or llvm.get_process_triple())
    machine = target.create_target_machine(cpu="", features="", opt=2, reloc="pic", codemodel="small")
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    for declared in module.functions:
        for prefix, why in RUNTIME.items():
            if declared.is_declaration and declared.name.startswith(prefix):
                raise Refused(f"`{function.__name__}` needs `{declared.name}`, which no target has: {why}")
    return machine.emit_object(module), module.as_bitcode()


def load(place):
    """Returns the function at FILE.py:NAME, without a decorator of Numba's."""
    path, separator, name = place.rpartition(":")
    if not separator:
        raise Refused(f"`{place}` names no function: write FILE.py:NAME")
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"`{path}` is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    function = getattr(function, "py_func", function)
    if not callable(function):
        raise Refused(f"`{path}` has no function `{name}`")
    return function


def build(function, signature, output, name=None, farjump="farjump", bitcode=True):
    """Builds the ifunc library `output` of a function. Raises Refused."""
    name = name or function.__name__
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise Refused(f"`{name}` is no name for routines")
    machine_code, intermediate = forms(function, signature, name)
    with tempfile.TemporaryDirectory() as folder:
        inputs = [pathlib.Path(folder, f"{name}.o"), pathlib.Path(folder, f"{name}.bc")]
        inputs[0].write_bytes(machine_code)
        inputs[1].write_bytes(intermediate)
        command = [farjump, "build", str(inputs[0]), "--name", name, "-o", str(output)]
        if bitcode:
            command[3:3] = [str(inputs[1]), "--bitcode"]
        try:
            built = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise Refused(f"`{farjump}` cannot be started: {error}") from error
    if built.returncode != 0:
        raise Refused(built.stderr.strip())
    return built.stdout


def main():
    parser = argparse.ArgumentParser(description="Turns a Python function into an ifunc library, by Numba")
    parser.add_argument("function", metavar="FILE.py:NAME")
    parser.add_argument("signature", help="such as 'int64(float32[::1], float32[::1])'")
    parser.add_argument("-o", "--output", required=True, metavar="LIBRARY.so")
    parser.add_argument("--name", help="NAME of the routines [default: the function's]")
    parser.add_argument("--farjump", default="farjump", metavar="PROGRAM", help="the program farjump")
    parser.add_argument("--no-bitcode", action="store_true", help="machine code alone")
    options = parser.parse_args()
    try:
        function = load(options.function)
        print(build(function, options.signature, options.output, options.name, options.farjump, not options.no_bitcode), end="")
    except (Refused, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
