from collections.abc import Awaitable, Generator, Iterable, Iterator
from os import PathLike
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, TypeVar, final, overload

from typing_extensions import Buffer

from ._types import LinkStats, Peer, TargetStats

__all__ = ["Library", "Link", "Pending", "Pendings", "Target", "close_targets", "gather"]

@final
class Library:
    def __new__(cls, path: str | PathLike[str]) -> Library: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def identity(self) -> list[str]: ...

@final
class Pending:
    def wait(self, timeout: float | None = None) -> bytes: ...
    def poll(self) -> bytes | None: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Generator[Any, None, bytes]: ...

_Outcome = TypeVar("_Outcome", bytes, bytes | Exception)

@final
class Pendings(Generic[_Outcome]):
    def wait(self, timeout: float | None = None) -> list[_Outcome]: ...
    def cancel(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Outcome]: ...
    def __await__(self) -> Generator[Any, None, list[_Outcome]]: ...
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...

@overload
def gather(
    pendings: Iterable[Pending], *, return_exceptions: Literal[False] = False
) -> Pendings[bytes]: ...
@overload
def gather(pendings: Iterable[Pending], *, return_exceptions: bool) -> Pendings[bytes | Exception]: ...

@final
class Link:
    def __new__(
        cls,
        address: str,
        *,
        transport: str | None = None,
        mode: str | None = None,
        connect_timeout: float | None = 5.0,
        send_timeout: float | None = 10.0,
        reply_mailbox_size: int | None = None,
        key_file: str | PathLike[str] | None = None,
    ) -> Link: ...
    def inject(self, library: Library, args: Buffer) -> Pending: ...
    def inject_async(self, library: Library, args: Buffer) -> Awaitable[Pending]: ...
    @overload
    def map(
        self, library: Library, args: Iterable[Buffer], *, return_exceptions: Literal[False] = False
    ) -> Pendings[bytes]: ...
    @overload
    def map(
        self, library: Library, args: Iterable[Buffer], *, return_exceptions: bool
    ) -> Pendings[bytes | Exception]: ...
    def call(self, library: Library, args: Buffer, timeout: float | None = None) -> bytes: ...
    def send(self, library: Library, args: Buffer) -> None: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def address(self) -> str: ...
    @property
    def transport(self) -> str: ...
    @property
    def stats(self) -> LinkStats: ...
    @property
    def peer(self) -> Peer: ...
    def __enter__(self) -> Link: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Target:
    def __new__(
        cls,
        address: str,
        *,
        transport: str | None = None,
        exports: Iterable[str | PathLike[str]] = (),
        wanted_libraries: Iterable[str] = (),
        process_symbols: bool = False,
        local: Iterable[Library] = (),
        modes: Iterable[str] | None = None,
        data: Buffer | str | PathLike[str] | None = None,
        rights: Iterable[str] | None = None,
        allow_code: Iterable[str] | None = None,
        allow_making: bool = False,
        destinations: dict[str, str] | None = None,
        key_file: str | PathLike[str] | None = None,
        peer_key_file: str | PathLike[str] | None = None,
        peer_timeout: float | None = None,
        clear: bool = False,
        mailbox_size: int | None = None,
        arena_size: int | None = None,
        store_capacity: tuple[int, int] | None = None,
        max_sources: int | None = None,
        max_payload: int | None = None,
        max_image: int | None = None,
        max_frame: int | None = None,
        max_source_memory: int | None = None,
        handshake_timeout: float | None = None,
    ) -> Target: ...
    def poll(self) -> int: ...
    def run(self, timeout: float | None = None) -> bool: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    @property
    def address(self) -> str: ...
    @property
    def stats(self) -> TargetStats: ...
    def __enter__(self) -> Target: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def close_targets() -> None: ...
