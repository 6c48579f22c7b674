"""The folder of a warehouse, before anything is put into it: is one there, and if not, may one be made?"""

from __future__ import annotations

import os
from pathlib import Path

from tidewheel.catalog.lease import FILE as LOCK
from tidewheel.chunk import names
from tidewheel.cluster.address import FOLDER
from tidewheel.errors import InputError, NotFoundError

_OURS = {LOCK, FOLDER, names.LOGS, names.QUARANTINE, names.STAGING, names.STREAMS, names.TABLES, "tidewheel.toml"}
"""What is in a folder that somebody is just making a warehouse of, or that had one."""
_ANYBODYS = {"lost+found"}
"""What systems put into folders by themselves; so they do with names that begin with a point."""
_SHOWN = 3


def check_place(root: Path, create: bool = True) -> None:
    """Raises NotFoundError if there is no warehouse and none is to be made, InputError if it is a file, or a folder for something else."""
    if os.path.lexists(root / names.CATALOG):
        return
    try:
        there = sorted(os.listdir(root))
    except OSError:  # it is not there, or no folder, or closed to us: whoever takes it says so
        there = []
    if root.is_file():
        raise InputError(f"{root} is a file, and a warehouse is a folder: open one, and load the file with wh.load(table, {str(root)!r})")
    if not create:
        raise NotFoundError(
            f"there is no warehouse in {root}: it has no {names.CATALOG}. Give the folder that was given to tw.open when it was made, or "
            "leave out create=False to make one here"
        )
    # a folder that was locked once is a warehouse's: if its catalog is lost, whoever takes it says so
    foreign = [name for name in there if not _may_be_there(name)] if LOCK not in there else []
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise InputError(
            f"{root} is no warehouse, and other things are in it: {', '.join(foreign[:_SHOWN])}{more}. A warehouse has its folder for "
            "itself: give one that is empty or not there yet. Nothing was changed"
        )


def _may_be_there(name: str) -> bool:
    return name in _OURS or name in _ANYBODYS or name.startswith((".", f"{names.CATALOG}-"))
