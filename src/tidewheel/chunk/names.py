"""Every path of a warehouse is composed here.

root/
  catalog.sqlite            what is known
  owner.lock                held by the owner
  tables/<table id>/        chunks of one table: <chunk id>.arrow
                            <chunk id>.arrow.tmp while it is written
  logs/<table id>/          <epoch>-<number>.log: segments of its owner's log (docs/log-format.md)
  staging/<job>/            chunks of a bulk load until it is committed
                            <job>.ended while what is left of it is removed
  streams/<name>/           Spark's checkpoint of a stream that `tidewheel ingest` runs
  owner/                    where the owner listens (cluster/address.py)
  quarantine/<when>/        what a repair took out of the way, under the names it had below the root
"""

from __future__ import annotations

import re
import secrets
import time

from tidewheel.env.local_files import TEMPORARY as TEMPORARY
from tidewheel.errors import InputError
from tidewheel.model.chunk_names import ARROW as ARROW
from tidewheel.model.chunk_names import CATALOG as CATALOG
from tidewheel.model.chunk_names import CHUNK_ID
from tidewheel.model.chunk_names import LOGS as LOGS
from tidewheel.model.chunk_names import TABLES as TABLES
from tidewheel.model.chunk_names import chunk_file as chunk_file
from tidewheel.model.chunk_names import chunk_of as chunk_of
from tidewheel.model.chunk_names import table_folder as table_folder

QUARANTINE = "quarantine"
STAGING = "staging"
STREAMS = "streams"

_ENDED = ".ended"

_CHUNK = re.compile(rf"{TABLES}/\d+/{CHUNK_ID.pattern}\.{ARROW}(\.tmp)?", re.ASCII)

_SEGMENT = re.compile(rf"{LOGS}/(\d+)/([0-9a-f]{{8}})-([0-9a-f]{{8}})\.log", re.ASCII)

_JOB = re.compile(r"\d+-[0-9a-f]{16}", re.ASCII)


def new_chunk_id() -> str:
    """Unique for ever, and sorted by the time of making."""
    return f"{time.time_ns() // 1000:015x}{secrets.token_hex(4)}"


def is_chunk(file: str) -> bool:
    """Whether a file below the root is a chunk of ours, finished or not."""
    return _CHUNK.fullmatch(file) is not None


def new_job(table_id: int) -> str:
    """The name of a load: unique for ever, and it tells the table."""
    return f"{table_id}-{secrets.token_hex(8)}"


def is_job(name: object) -> bool:
    """Whether a load can have this name."""
    return isinstance(name, str) and _JOB.fullmatch(name) is not None


def staging_folder(job: str) -> str:
    """Where the tasks of one bulk load write. Jobs are named in messages: one that is no name of ours is refused."""
    if not is_job(job):
        raise InputError(f"{job!r} is not the name of a load")
    return f"{STAGING}/{job}"


def ended_folder(folder: str) -> str:
    """What the folder of a load is called while it is removed."""
    return folder + _ENDED


def is_ended(folder: str) -> bool:
    return folder.endswith(_ENDED)


def staged_file(folder: str, chunk_id: str) -> str:
    return f"{folder}/{chunk_id}.{ARROW}"


def stream_folder(name: str) -> str:
    """The checkpoint of a stream."""
    return f"{STREAMS}/{name}"


def quarantined(file: str, when: str) -> str:
    """Where a repair moves a file; `when` keeps the files of one repair together."""
    return f"{QUARANTINE}/{when}/{file}"


def log_folder(table_id: int) -> str:
    return f"{LOGS}/{table_id}"


def segment_file(table_id: int, epoch: int, number: int) -> str:
    return f"{log_folder(table_id)}/{epoch:08x}-{number:08x}.log"


def segment_of(file: str) -> tuple[int, int, int] | None:
    """(table id, epoch, number) of a log segment of ours, or None if the file is none."""
    found = _SEGMENT.fullmatch(file)
    return (int(found[1]), int(found[2], 16), int(found[3], 16)) if found else None
