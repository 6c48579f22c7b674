"""What the rows of a tree came as: packages and batches of streams, in the order they came, found by name however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidewheel.model.records import Delivery, PackageRecord


class Deliveries:
    """Only grows. Changed under the table's lock; `list` of it may be taken by any thread."""

    __slots__ = ("_all", "_last", "_packages")

    def __init__(self) -> None:
        self._all: dict[Delivery, None] = {}
        self._packages: set[str] = set()
        self._last: dict[str, int] = {}

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """May be called again for the same ones, if the first call was interrupted."""
        for one in deliveries:
            if isinstance(one, PackageRecord):
                self._packages.add(one.name)
            else:
                self._last[one.stream] = max(one.batch, self._last.get(one.stream, one.batch))
            self._all[one] = None

    def holds(self, package: str) -> bool:
        return package in self._packages

    def last_batch(self, stream: str) -> int | None:
        """The greatest batch of a stream among them."""
        return self._last.get(stream)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(list(self._all))
