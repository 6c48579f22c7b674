"""The key coders of a table. Most keys have one; texts have one for each way in which they were divided."""

from __future__ import annotations

import itertools
import threading
import weakref

from tidewheel.model.codes import KeyCoder


class Coders:
    """One coder for each description, for as long as a template or a chunk uses it; `first` stays. Safe to use from any thread."""

    def __init__(self, first: KeyCoder) -> None:
        self.first = first
        self._others: weakref.WeakValueDictionary[bytes, KeyCoder] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, prefix: bytes) -> KeyCoder:
        """The coder that this describes."""
        if prefix == self.first.prefix or not self.first.learns:
            return self.first
        with self._lock:
            coder = self._others.get(prefix)
            if coder is None:
                used = {other.number for other in self._others.values()}
                number = next(i for i in itertools.count(1) if i not in used)  # small: queries have a list of them
                self._others[prefix] = coder = self.first.with_prefix(prefix, number)
            return coder

    def __len__(self) -> int:
        """How many are in use."""
        return 1 + len(self._others)
