"""The publisher and the subscriber of ProxyStore's streams (`proxystore.stream.protocols`). They need nothing of ProxyStore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from . import Store

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self

    from ._native import Publisher, Subscriber

__all__ = ["FarjumpPublisher", "FarjumpSubscriber"]


class FarjumpPublisher:
    """A publisher in topics of the store at an address: a `MessagePublisher` of ProxyStore's.

    Args:
        address: the address of a target with a store.
        capacity: most messages of a topic that its slowest subscriber has not taken; 64 if not given.
        await_subscribers: messages are kept until so many subscribers have come.
        overflow: the action at a full topic: "wait", "refuse" or "drop-oldest".
        timeout: longest wait for a subscriber, in seconds.
        key_file: the key for a target over TCP.
    """

    def __init__(
        self,
        address: str,
        *,
        capacity: int | None = None,
        await_subscribers: int = 1,
        overflow: Literal["wait", "refuse", "drop-oldest"] = "wait",
        timeout: float | None = None,
        key_file: str | PathLike[str] | None = None,
    ) -> None:
        self._store = Store(address, key_file=key_file)
        self._options = {"capacity": capacity, "await_subscribers": await_subscribers, "overflow": overflow}
        self._timeout = timeout
        self._publishers: dict[str, Publisher] = {}

    def send_message(self, topic: str, message: bytes) -> None:
        """Publishes a message in a topic."""
        publisher = self._publishers.get(topic)
        if publisher is None:
            publisher = self._publishers[topic] = self._store.publisher(topic, **self._options)
        publisher.publish_bytes(message, timeout=self._timeout)

    def close(self) -> None:
        """Finishes its topics: subscribers end after the last message. Closing it again does nothing."""
        while self._publishers:
            self._publishers.popitem()[1].finish()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FarjumpSubscriber:
    """A subscriber to a topic: a `MessageSubscriber` of ProxyStore's.

    It ends when all publishers have finished. It raises `farjump.PublisherGone` once for each publisher that ended otherwise.

    Args:
        address: the address of a target with a store.
        topic: the topic's name.
        from_now: whether earlier messages are left out.
        publishers: the stream does not end before so many publishers have come.
        timeout: longest wait for a message, in seconds.
        key_file: the key for a target over TCP.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        from_now: bool = False,
        publishers: int = 1,
        timeout: float | None = None,
        key_file: str | PathLike[str] | None = None,
    ) -> None:
        self._store = Store(address, key_file=key_file)
        self._timeout = timeout
        try:
            self._subscriber: Subscriber = self._store.subscribe(topic, from_now=from_now, publishers=publishers)
        except BaseException:
            self._store.close()
            raise

    def next_message(self) -> bytes:
        """Waits for the next message, and returns it.

        Raises:
            StopIteration: if all publishers have finished.
        """
        item = self._subscriber.next(self._timeout)
        if item is None:
            raise StopIteration
        return bytes(self._store.get(item.handle))

    def close(self) -> None:
        """Ends the subscription. Closing it again does nothing."""
        self._subscriber.close()
        self._store.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return self.next_message()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
