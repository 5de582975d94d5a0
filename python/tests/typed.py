"""A program whose types mypy checks: test_types.py runs it."""

import asyncio
from pathlib import Path
from typing import assert_type

import farjump


def calls(link: farjump.Link, library: farjump.Library) -> None:
    assert_type(link.call(library, b"", timeout=1), bytes)
    pending = link.inject(library, bytearray(1))
    assert_type(pending.poll(), bytes | None)
    assert_type(farjump.gather([pending]).wait(), list[bytes])
    assert_type(farjump.gather([pending], return_exceptions=True).wait(), list[bytes | Exception])
    for reply in link.map(library, (str(number).encode() for number in range(3))):
        assert_type(reply, bytes)
    for outcome in link.map(library, [memoryview(b"")], return_exceptions=True):
        assert_type(outcome, bytes | Exception)
    link.call(library, "text")  # type: ignore[call-overload]
    link.map(library, b"one")  # type: ignore[arg-type]


async def awaits(link: farjump.Link, library: farjump.Library) -> list[bytes]:
    pending = await link.inject_async(library, b"")
    assert_type(await pending, bytes)
    assert_type(await link.map(library, [b""]), list[bytes])
    together: farjump.Pendings[bytes] = farjump.gather([pending])
    assert_type(await asyncio.wait_for(together, 1), list[bytes])
    return await together


def serves(address: str) -> int:
    options = farjump.Link(address, connect_timeout=None, peer_timeout=2, wait_policy="never").options
    assert_type(options["peer_timeout"], str | None)
    libraries = ("libm.so.6", Path("libc.so.6"))
    with farjump.Target(address, data=b"", destination={"next": address}, export_library=libraries, max_payload="1M") as target:
        assert_type(target.run(timeout=0.1), bool)
        return target.stats.calls


def keeps(store: farjump.Store) -> int:
    handle = store.put(b"bytes", type_name="text")
    assert_type(store.get(handle), memoryview)
    assert_type(farjump.Handle(bytes(handle)), farjump.Handle)
    store.get(b"bytes")  # type: ignore[arg-type]
    return handle.length
