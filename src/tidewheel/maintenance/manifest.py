"""The manifest of a backup: which files belong to it, and what their bytes are. The format is described in docs/operations.md. No I/O.

Every path of a backup is composed here:

folder/
  manifest.json             what belongs to the backup; written last, replaced at once
  catalog-<id>.sqlite       a copy of the catalog
  tables/<table id>/        chunks, named as in the warehouse
"""

from __future__ import annotations

import builtins
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from tidewheel.chunk import names
from tidewheel.errors import CorruptionError, FormatError
from tidewheel.model.record_checks import WrongValueError, text, whole

FORMAT = 1
FILE = "manifest.json"

_CATALOG = re.compile(r"catalog-[0-9a-f]+\.sqlite", re.ASCII)

_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)


def catalog_file(backup_id: str) -> str:
    return f"catalog-{backup_id}.sqlite"


def is_ours(file: str) -> bool:
    """Whether a file in the folder of a backup was put there by one: then the next may remove it."""
    return names.is_chunk(file) or _CATALOG.fullmatch(file.removesuffix(names.TEMPORARY)) is not None or file == FILE + names.TEMPORARY


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file must be."""

    bytes: int
    xxh3: str


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table in a backup: the folder of its chunks goes by its id."""

    id: int
    rows: int
    """In chunks; those that a `replace` hides are counted too."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in a backup. One without a catalog was begun and never completed."""

    made: str = ""
    """UTC, ISO."""
    made_by: str = ""
    warehouse: str = ""
    tables: dict[str, TableEntry] = field(default_factory=dict)
    """By name."""
    catalog: str = ""
    files: dict[str, Stored] = field(default_factory=dict)
    """By name; the catalog is one of them."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> builtins.bytes:
        values: dict[str, Any] = {name: getattr(self, name) for name in Manifest.__slots__}
        values["tables"] = {name: asdict(table) for name, table in self.tables.items()}
        values["files"] = {name: asdict(file) for name, file in self.files.items()}
        values["format"] = FORMAT
        return _text({**values, "checksum": digest(_text(values))})

    @classmethod
    def from_json(cls, data: builtins.bytes, where: str) -> Manifest:
        """Raises FormatError or CorruptionError that says what to do."""
        try:
            values = json.loads(data)
            format_ = values.pop("format")
            if format_ != FORMAT:
                raise FormatError(f"{where} has format {format_}, this Tidewheel reads {FORMAT}: use a newer version")
            if values.pop("checksum") != digest(_text({**values, "format": FORMAT})):
                raise ValueError("its checksum is wrong")
            values["tables"] = {name: TableEntry(**table) for name, table in values["tables"].items()}
            values["files"] = {name: Stored(**file) for name, file in values["files"].items()}
            manifest = cls(**values)
            manifest._check()
            return manifest
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, WrongValueError) as e:
            raise CorruptionError(f"{where} is damaged ({e}): use another backup, and make the next one in a new folder") from e

    def _check(self) -> None:
        """Only names that a backup gives: whoever follows the manifest writes and removes nothing else. A checksum proves no origin."""
        for name in ("made", "made_by", "warehouse", "catalog"):
            text(name, getattr(self, name))
        for table in self.tables.values():
            whole("id", table.id, 1)
            whole("rows", table.rows, 0)
        ids = {table.id for table in self.tables.values()}
        for name, stored in self.files.items():
            chunk = names.chunk_of(name)
            if chunk is None and not (name == self.catalog and _CATALOG.fullmatch(name)) or chunk is not None and chunk[0] not in ids:
                raise ValueError(f"{name!r} is no name of a file in a backup")
            whole("bytes", stored.bytes, 0)
            if _DIGEST.fullmatch(text("xxh3", stored.xxh3)) is None:
                raise ValueError(f"the checksum of {name!r} is none")
        if self.catalog and self.catalog not in self.files:
            raise ValueError(f"its catalog {self.catalog!r} is not among its files")


def digest(data: Any) -> str:
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def _text(values: dict[str, Any]) -> bytes:
    return json.dumps(values, indent=1, sort_keys=True).encode()
