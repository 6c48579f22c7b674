"""The files that somebody means: names, patterns and folders become a list of files that can be read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tidewheel.errors import InputError, NotFoundError
from tidewheel.ingest.file_rows import Broken, named


def found_files(given: Any, any_name: bool) -> list[str]:
    """Paths, each once, in the order in which they were given; those of a pattern or a folder by their names.

    A folder stands for all files below it whose names say a format, or for all of them (`any_name`); names that begin with . or _ are
    left out.
    """
    asked = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(asked, Iterable):
        raise InputError(f"files are given by a path, a pattern such as 'rides/*.parquet', a folder, or a list of these, not {given!r}")
    found: dict[str, None] = {}
    for one in asked:
        if not isinstance(one, (str, os.PathLike)) or not str(one):
            raise InputError(f"a file is given by its path, not {one!r}")
        found.update(dict.fromkeys(_found(os.path.expanduser(os.fspath(one)), any_name)))
    if not found:
        raise InputError("no files were given")
    return list(found)


def shown(path: str) -> str:
    """A path as it can be printed: bytes of a name that are no text are said by their numbers."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def size_of(path: str) -> int:
    """Bytes of a file; of one that is gone meanwhile, none: the one who opens it says so."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _found(path: str, any_name: bool) -> list[str]:
    if "://" in path:
        raise InputError(f"{path}: files are loaded from folders of this machine; `tidewheel ingest` reads what Spark can reach")
    if os.path.isdir(path):
        below = [str(file) for file in _below(Path(path), set()) if any_name or _is_known(file.name)]
        if not below:
            raise NotFoundError(f"there are no files in the folder {path} whose names say a format, such as .csv, .parquet or .json.gz")
        return below
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise InputError(f"{path} is a pipe or a device: give a file")
        return [path]
    if glob.has_magic(path):
        matching = sorted(one for one in glob.glob(path, recursive=True) if os.path.isfile(one))
        if matching:
            return matching
        raise NotFoundError(f"no file is like {path}")
    raise NotFoundError(f"there is no file {path}")


def _below(folder: Path, seen: set[str]) -> Iterator[Path]:
    """The files below a folder. Links to folders are followed, but no folder is looked into twice."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    for one in sorted(folder.iterdir()):
        if one.name.startswith((".", "_")):
            continue
        if one.is_dir():
            yield from _below(one, seen)
        elif one.is_file():
            yield one


def _is_known(name: str) -> bool:
    try:
        named(name)
    except Broken:
        return False
    return True
