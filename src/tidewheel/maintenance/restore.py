"""Make a warehouse of a backup: every file is copied and compared with the manifest; the catalog comes last.

Until the catalog has its name the folder is no warehouse, so a crash leaves nothing that could be taken for one. Copies, not links:
what is restored must not share its bytes with the backup it may need again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tidewheel.catalog.lease import FILE as LOCK
from tidewheel.catalog.lease import lock
from tidewheel.chunk import names
from tidewheel.env.disk import Disk
from tidewheel.env.folder_lock import hold
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import CorruptionError, InputError, NotFoundError, StorageError
from tidewheel.maintenance.manifest import FILE, Manifest, Stored, digest
from tidewheel.model.report import Progress, RestoreReport


def restore(
    folder: str | os.PathLike[str], root: str | os.PathLike[str], *, progress: Progress | None = None, disk: Disk | None = None
) -> RestoreReport:
    """Make the warehouse in `root`, which must be missing or empty, out of the backup in `folder`.

    Every byte is compared with what was backed up. If anything is wrong, it is said and nothing is left in `root`. `progress` is told
    how many bytes are done, and of how many.
    """
    began = time.monotonic()
    source = LocalFiles(Path(folder).expanduser().resolve(), disk)
    target = LocalFiles(Path(root).expanduser().resolve(), disk)
    if source.regular_size(FILE) < 0:
        raise NotFoundError(f"there is no backup in {source.root}: it has no {FILE}. Give the folder that was given to wh.backup")
    _check_empty(target.root)
    with hold(str(source.root), shared=True):
        manifest = Manifest.from_json(source.read(FILE).to_pybytes(), source.path(FILE))
        _check_files(source, manifest)
        _fill(source, target, manifest, progress or (lambda done, total: None))
    return RestoreReport(
        str(target.root), manifest.made, len(manifest.tables), len(manifest.files), manifest.rows, manifest.bytes, time.monotonic() - began
    )


def _check_empty(root: Path, held: Path | None = None) -> None:
    """`held`: another path to the folder."""
    at = held or root
    if at.exists() and (not at.is_dir() or {path.name for path in at.iterdir()} - {LOCK} or (at / LOCK).is_symlink()):
        raise InputError(f"{root} is not empty: restore into a folder that is missing or empty, and move or delete what is there")


def _check_files(source: LocalFiles, manifest: Manifest) -> None:
    """What can be known of the backup without reading it: before anything is made."""
    if not manifest.catalog:
        raise CorruptionError(f"the backup in {source.root} was begun and never completed: use another one, or make it again")
    for name, stored in manifest.files.items():
        path, size = source.path(name), source.regular_size(name)
        if size < 0 and os.path.lexists(path):
            raise CorruptionError(
                f"{path} is a link, or lies behind one: a backup has only files. Nothing was restored; use another backup"
            )
        if size < 0:
            raise CorruptionError(f"{path} is missing from the backup; nothing was restored. Use another backup")
        if size != stored.bytes:
            raise CorruptionError(f"{path} has {size} bytes, not {stored.bytes}; nothing was restored. Use another backup")


def _fill(source: LocalFiles, target: LocalFiles, manifest: Manifest, progress: Progress) -> None:
    fresh = not target.root.exists()
    try:
        target.make_root()
        target.hold()
        held = Path(target.path(""))
        owner = lock(target.root, held)  # nobody opens it before it is whole
    except BaseException:
        if fresh:
            target.remove_folder("")
        raise
    try:
        _check_empty(target.root, held)  # somebody may have been quicker
        try:
            _copy_all(source, target, manifest, progress)
        except BaseException:
            with suppress(Exception):
                _empty(target, manifest, fresh)
            raise
    finally:
        owner.release()


def _copy_all(source: LocalFiles, target: LocalFiles, manifest: Manifest, progress: Progress) -> None:
    chunks = [name for name in manifest.files if name != manifest.catalog]
    for table in manifest.tables.values():
        target.make_folder(names.table_folder(table.id))
    done = 0
    for name in chunks:
        _copy(source, target, name, name, manifest.files[name])
        done += manifest.files[name].bytes
        progress(done, manifest.bytes)
    target.appear(chunks)
    if manifest.tables:
        target.sync_folder(names.TABLES)
    _copy(source, target, manifest.catalog, names.CATALOG, manifest.files[manifest.catalog])
    target.appear([names.CATALOG])
    progress(manifest.bytes, manifest.bytes)


def _copy(source: LocalFiles, target: LocalFiles, old: str, new: str, stored: Stored) -> None:
    """Under its temporary name, and read back: that compares what the backup holds and what the new disk took."""
    try:
        target.disk.copy(source.path(old), target.path(new) + names.TEMPORARY)
    except OSError as e:
        raise StorageError(
            f"cannot restore {source.path(old)} to {target.shown(new)}: {e.strerror or e}. Nothing was restored; try again."
        ) from e
    if digest(target.read(new + names.TEMPORARY)) == stored.xxh3:
        return
    if digest(source.read(old)) != stored.xxh3:
        raise CorruptionError(f"{source.path(old)} is damaged: it is not what was backed up. Nothing was restored; use another backup")
    raise StorageError(f"{target.shown(new)} is not what was written: its disk may be failing. Nothing was restored; use another disk")


def _empty(target: LocalFiles, manifest: Manifest, fresh: bool) -> None:
    """Take back what was made, first what makes it a warehouse."""
    for name in (names.CATALOG, *manifest.files, LOCK):
        target.remove(name)
    folders = [names.table_folder(table.id) for table in manifest.tables.values()]
    for folder in (*folders, names.TABLES, *([""] if fresh else [])):
        target.remove_folder(folder)
