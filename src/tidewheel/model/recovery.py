"""What opening a warehouse had to mend after an owner that did not close it, as values and as text."""

from __future__ import annotations

from tidewheel.model.dataclass import dataclass
from tidewheel.model.records import Lease


@dataclass(frozen=True, slots=True)
class TableRecovery:
    """What was done for one table."""

    table: str
    segments: int
    log_bytes: int
    batches: int
    """Replayed: those with rows that no chunk had."""
    rows: int
    packages: tuple[str, ...]
    cut_bytes: int
    """At the end of the log: a batch that was being written when the owner died, and was never acknowledged."""
    dropped: int
    """Whole records behind the cut. Only after the machine itself stopped, and only with durability="process"."""
    damage: tuple[str, ...]
    """What was skipped because of damaged_log="skip"."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a warehouse had to mend."""

    seconds: float
    owner: Lease | None
    """The owner before, if it did not close the warehouse."""
    tables: tuple[TableRecovery, ...]
    """Those whose log was not empty."""
    orphans: int
    """Files that were removed: of flushes that were never committed, or of tables that were dropped."""

    @property
    def rows(self) -> int:
        """Rows brought back from the log."""
        return sum(table.rows for table in self.tables)

    @property
    def clean(self) -> bool:
        """The warehouse had been closed; there was nothing to do."""
        return self.owner is None and not self.tables and not self.orphans

    def __str__(self) -> str:
        if self.clean:
            return "closed properly, nothing to recover"
        said = []
        if self.owner is not None:
            said.append(f"process {self.owner.pid} on {self.owner.host} did not close it")
        for table in self.tables:
            said.append(f"{table.table}: {table.rows:,} rows of {table.batches:,} batches replayed from {table.log_bytes:,} bytes of log")
            if table.cut_bytes:
                said.append(f"{table.table}: {table.cut_bytes:,} bytes of a batch that was never acknowledged cut off")
            if table.dropped:
                said.append(f"{table.table}: {table.dropped:,} batches lost when the machine stopped")
            said += [f"{table.table}: {damage}" for damage in table.damage]
        if self.orphans:
            said.append(f"{self.orphans:,} files that nothing points to removed")
        return f"recovered in {self.seconds:.2f} s: " + "; ".join(said)
