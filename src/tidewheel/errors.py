"""Every error Tidewheel raises, as one tree. Catch `TidewheelError` to catch them all.

TidewheelError
├── InputError            the caller's data or arguments; nothing was changed
│   ├── SchemaError         a table definition that cannot work
│   ├── BadRowsError        rows that do not fit their table
│   ├── QueryError          a query that cannot be asked
│   └── SettingsError       an unknown or impossible setting
├── NotFoundError         no such table
├── ExistsError           a table of that name is there already
├── ConflictError         another refresh was faster, or a source was replaced: nothing was changed (retryable)
├── OwnedError            another live process owns the warehouse, and cannot be reached (retryable)
│   └── OwnerLostError      the owner died during the call; the next call finds or becomes a new one (retryable)
├── StagingLostError      slices of a batch are gone with the owner they were staged with: send the batch again (retryable)
├── ClosedError           the warehouse was closed
├── StorageError          a file or the catalog could not be read or written (retryable)
│   ├── NotSyncedError      rows are visible, but may not survive a power failure until they are flushed
│   └── FormatError         a file made by a newer Tidewheel, or not by Tidewheel at all
├── CorruptionError       stored bytes are not the bytes that were written
├── LimitError            a limit of the call (time, rows, memory) was reached
│   └── CancelledError      the query was cancelled
├── FencedError           this process is not the owner any more: nothing more is acknowledged; open the warehouse again
└── SparkError            Spark is not installed, cannot start, or lacks a connector

One thing is a warning, because it was asked for: `CorruptionWarning`, when a query with on_corrupt="skip" leaves rows out.
"""

from __future__ import annotations


class TidewheelError(Exception):
    """The root of the tree. `retryable` says whether the same call may succeed later."""

    retryable = False


class InputError(TidewheelError, ValueError):
    """The caller's data or arguments are wrong; nothing was changed."""


class SchemaError(InputError):
    """A table definition that cannot work."""


class BadRowsError(InputError):
    """Rows that do not fit their table. `rows` holds the first bad positions in the batch."""

    def __init__(self, message: str, *, table: str = "", column: str = "", rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.table = table
        self.column = column
        self.rows = rows


class QueryError(InputError):
    """A query that cannot be asked: an unknown column, a wrong type, a malformed expression."""


class SettingsError(InputError):
    """An unknown or impossible setting."""


class NotFoundError(TidewheelError, KeyError):
    """There is no such table."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ExistsError(TidewheelError):
    """A table of that name is there already."""


class ConflictError(TidewheelError):
    """A refresh was planned for what is not so any more: another one was faster, or a source was replaced. Nothing was changed."""

    retryable = True


class OwnedError(TidewheelError):
    """Another live process owns the warehouse. If it never will let us in, this error of it is not `retryable`."""

    retryable = True

    def __init__(self, message: str, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class OwnerLostError(OwnedError):
    """The owner died, or cannot be reached any more, during this call: what was to be written may be there or not.

    The next call attaches to a new owner, or becomes it. Inserts with a `package`, and batches of a stream, can simply be repeated.
    If `untouched`, it is certain that nothing was done, and any call can be.
    """

    def __init__(self, message: str, *, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched


class StagingLostError(TidewheelError):
    """Slices of a batch are gone with the owner they were staged with. Nothing was inserted; send the batch again."""

    retryable = True


class ClosedError(TidewheelError):
    """The warehouse was closed; open it again."""


class StorageError(TidewheelError):
    """A file or the catalog could not be read or written."""

    retryable = True


class NotSyncedError(StorageError):
    """Rows are visible, but the log could not be synced: they may not survive a power failure until they are flushed."""

    retryable = False


class FormatError(StorageError):
    """A file made by a newer Tidewheel, or not by Tidewheel at all."""

    retryable = False


class CorruptionError(TidewheelError):
    """Stored bytes are not the bytes that were written.

    `file` is the damaged file, relative to the warehouse; `rows` are the rows of it [lo, hi) that are lost, None for all.
    """

    def __init__(self, message: str, *, file: str = "", rows: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.rows = rows


class CorruptionWarning(UserWarning):
    """A query with on_corrupt="skip" left damaged rows out of its answer; `result.stats` says how many."""


class LimitError(TidewheelError):
    """A limit of a call (time, rows, memory) was reached. `retryable` if it was the owner, or others, that the call waited for.

    What an insert was to do when its time was up may be done or not; the message says which it is, if that is known.
    """

    def __init__(self, message: str = "", *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class CancelledError(LimitError):
    """The query was ended by `Result.cancel`."""


class FencedError(TidewheelError):
    """This process is not the owner of the warehouse any more: its lock, folder, catalog or log was taken away, or its lease taken over.

    It stays so. What was acknowledged before is in the folder; what the call was to do may be done or not.
    """


class SparkError(TidewheelError):
    """Spark is not installed, cannot start, or lacks a connector. The message says what to do, and where its log is."""
