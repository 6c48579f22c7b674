"""What can be tuned, each with its unit and its trade-off. The defaults need no thought.

Settings are frozen: they are given once to `tw.open` and hold until the warehouse is closed.
"""

from __future__ import annotations

from dataclasses import fields

from tidewheel.errors import SettingsError
from tidewheel.model.dataclass import dataclass

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    # ---- behaviour: what a user may observe -------------------------------------------------------------
    durability: str = "process"
    """What an acknowledged row survives until it is in a chunk. `memory`: nothing. `process`: the end of the process, however it
    ends. `fsync`: also a power failure; every insert then waits for the disk, several writers together."""
    damaged_log: str = "refuse"
    """What to do if the log of an owner that crashed is damaged, so that acknowledged rows are missing. `refuse`: do not open.
    `skip`: open with what is whole, and keep the damaged segments in `quarantine/`; `wh.recovery` says what is lost."""
    late_after: float = 60.0
    """Seconds (Δt) by which a row may be older than its server's previous chunk and still join the ordinary tree.
    Larger keeps slightly late rows together with the others; smaller keeps the regions of chunks tighter."""
    max_batch_bytes: int = 1024 * MB
    """Bytes that one insert may have: it is in memory as a whole before any of it is flushed. A larger one is refused."""
    query_seconds: float | None = None
    """Seconds that a query may take, unless it says `timeout=` itself. None: no limit."""
    query_rows: int | None = None
    """Rows that a query may return, unless it says `max_rows=` itself. None: no limit."""
    query_bytes: float | None = 0.5
    """Bytes that a query may hold in memory at once, unless it says `max_bytes=` itself; up to 1, a share of the machine's
    memory. Smaller keeps one careless query from ending the process, and everything else in it. None: no limit."""

    # ---- performance: same answers, other costs ---------------------------------------------------------
    indexing_servers: int = 1
    """Key intervals per table, each with a tree of its own. More give narrower chunks and several flushes at once."""
    chunk_bytes: int = 16 * MB
    """Bytes of rows in a tree before it is flushed. Larger means fewer files, more memory, longer flushes."""
    flush_after: float = 300.0
    """Seconds before a tree is flushed even if it is small. Smaller means fresher files and more of them."""
    leaf_rows: int = 256
    """Rows aimed at per leaf. Smaller skips more precisely, larger has less to look at while planning."""
    sealed_trees: int = 3
    """Trees that may wait for their flush, times the number of indexing servers. When they are used up, inserts wait:
    memory stays bounded."""
    zero_copy_rows: int = 1024
    """From this many adjoining rows on, an answer points into the chunk instead of copying."""
    batch_rows: int = 65536
    """Rows per batch while a result is iterated: the memory a huge result needs."""
    map_chunks: bool = True
    """Read chunks by mapping their files into memory. False reads only the leaves a query touches, through a cache: for
    folders on network storage, where mapping is slow and a file that vanishes would end the process."""
    mapped_chunks: int | None = None
    """Chunks that the process may have mapped at once; beyond that, those that no query used of late are let go of, and what does not
    fit is read through the cache. More keep more of a table of many small chunks at hand; a system ends a process that maps too much.
    None: a quarter of what the system allows (on Linux of vm.max_map_count: 16,382 unless it was changed)."""
    cache_bytes: int = 256 * MB
    """Memory for the leaves of chunks that are not mapped."""

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise SettingsError(f"{name} is one of {', '.join(map(repr, known))}, not {getattr(self, name)!r}")
        if not isinstance(self.map_chunks, bool):
            raise SettingsError(f"map_chunks is True or False, not {self.map_chunks!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                raise SettingsError(f"{name} must be a number of at least {least}, not {value!r}")
            if name == "chunk_bytes" and value > 512 * MB:
                raise SettingsError(f"chunk_bytes is at most {512 * MB} (512 MB), not {value!r}")
            if name not in ("late_after", "flush_after") and not isinstance(value, int):
                raise SettingsError(f"{name} must be a whole number, not {value!r}")
        mapped = self.mapped_chunks
        if mapped is not None and (isinstance(mapped, bool) or not isinstance(mapped, int) or mapped < 1):
            raise SettingsError(f"mapped_chunks must be a whole number of at least 1, or None for what the system allows, not {mapped!r}")
        for name in ("query_seconds", "query_rows", "query_bytes"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise SettingsError(f"{name} must be a number above 0, or None for no limit, not {value!r}")

    @classmethod
    def of(cls, values: dict[str, object]) -> Settings:
        """Settings from a mapping; an unknown name is an error that lists the known ones."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise SettingsError(f"unknown setting {unknown[0]!r}; known: {', '.join(known)}")
        return cls(**values)  # type: ignore[arg-type]


_CHOICES = {"durability": ("memory", "process", "fsync"), "damaged_log": ("refuse", "skip")}

_LEAST: dict[str, float] = {
    "late_after": 0,
    "max_batch_bytes": 4096,
    "indexing_servers": 1,
    "chunk_bytes": 4096,
    "flush_after": 0.01,
    "leaf_rows": 1,
    "sealed_trees": 1,
    "zero_copy_rows": 1,
    "batch_rows": 1,
    "cache_bytes": 0,
}
