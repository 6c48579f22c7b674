"""Where Spark's log and what can be made again are kept: folders of the user, outside of any warehouse.

`XDG_STATE_HOME` and `XDG_CACHE_HOME` move them. Where the home folder cannot be written to, the temporary folder is used.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidewheel.errors import SparkError


def log_folder() -> Path:
    return _first_usable(_home("XDG_STATE_HOME", ".local/state") / "tidewheel" / "spark", "spark")


def cache_folder() -> Path:
    """Everything in it may be deleted at any time: it is made again."""
    return _first_usable(_home("XDG_CACHE_HOME", ".cache") / "tidewheel", "cache")


def _home(variable: str, default: str) -> Path:
    named = os.environ.get(variable, "")
    return Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~")) / default


def _first_usable(wanted: Path, name: str) -> Path:
    for folder in (wanted, Path(tempfile.gettempdir()) / f"tidewheel-{os.getuid()}" / name):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # In a temporary folder anybody may have made one of that name: what lies there is run, so it must be ours.
            if os.access(folder, os.W_OK | os.X_OK) and {os.getuid()} == {p.stat().st_uid for p in (folder, folder.parent)}:
                return folder
        except OSError:
            continue
    raise SparkError(
        f"neither {wanted} nor {tempfile.gettempdir()} can be written to: set XDG_STATE_HOME and XDG_CACHE_HOME to folders of yours"
    )
