"""`tidewheel doctor`: is this machine fit for Tidewheel, and if not, what is to be done?

`checks` looks at everything and returns what it found as data; `doctor` prints that. Nothing is changed, but for a hidden folder that is
made beside the data for a moment. What is made of the facts is decided in `surfaces/verdicts.py`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tidewheel.cluster import address
from tidewheel.env.memory import machine_memory
from tidewheel.errors import SparkError, TidewheelError
from tidewheel.surfaces.verdicts import (
    Check,
    judge_clock,
    judge_disk,
    judge_files,
    judge_kernels,
    judge_memory,
    judge_packages,
    judge_python,
    judge_spark,
    requirement,
)

_TRIAL_SECONDS = 240


def doctor(warehouse: str | None, deep: bool) -> int:
    """Print all checks. 0: there is no problem, 1: there is one."""
    console = Console(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "problem": "red"}
    found = []
    with console.status("looking around") if console.is_terminal else nullcontext():
        for check in checks(warehouse, deep):
            found.append(check)
            console.print(f"[{colours[check.verdict]}]{check.verdict:<8}[/] {check.name:<9} {escape(check.found)}")
            if check.todo:
                console.print(f"{'':<18} → {escape(check.todo)}")
    bad, odd = (sum(check.verdict == verdict for check in found) for verdict in ("problem", "warning"))
    if bad:
        console.print(f"{bad} {'problem' if bad == 1 else 'problems'}: see above what to do.")
    else:
        console.print("Tidewheel can run here" + (f", with {odd} {'warning' if odd == 1 else 'warnings'}." if odd else "."))
    return 1 if bad else 0


def checks(warehouse: str | None = None, deep: bool = False) -> Iterator[Check]:
    """Everything, one by one, as it is found. `deep` also starts Spark."""
    yield judge_python(sys.version_info[:3], struct.calcsize("P") * 8, platform.system(), sys.executable)
    yield from look_at_packages()
    yield look_at_java()
    yield look_at_workers()
    if deep:
        yield look_at_spark()
    yield judge_memory(machine_memory())
    yield judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield look_at_kernels()
    yield from look_at_folder(Path(warehouse or ".").expanduser().resolve())


# ---- Python ---------------------------------------------------------------------------------------------


def look_at_packages() -> list[Check]:
    try:
        required = metadata.requires("tidewheel") or []
    except metadata.PackageNotFoundError:
        return [
            Check("packages", "warning", "Tidewheel itself is not installed, so nothing is known of what it needs", "pip install tidewheel")
        ]
    installed = {}
    for line in required:
        name = requirement(line)[0]
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return judge_packages(required, installed)


def look_at_kernels() -> Check:
    """Compiles them if nobody has; that they are cached is what counts."""
    from tidewheel.surfaces.warm import kernels

    misses, places = 0, set()
    for kernel in kernels():
        misses += sum(kernel.stats.cache_misses.values())
        places.add(kernel.stats.cache_path)
    return judge_kernels(misses, sorted(place for place in places if place))


# ---- Spark ----------------------------------------------------------------------------------------------


def look_at_java() -> Check:
    from tidewheel.spark import java

    seen = java.look(os.environ)
    try:
        chosen = java.choose(seen)
    except SparkError as e:
        return Check("java", "warning", "none that can run Spark (only pipelines on Spark need one)", str(e))
    found = f"{chosen.version}, from {chosen.where}: {chosen.home}"
    passed = [f"{one.where} ({one.fault or f'Java {one.version}'})" for one in seen[: seen.index(chosen)] if one.home is not None]
    if passed:
        return Check(
            "java", "warning", found, f"passed over: {', '.join(passed)}; set JAVA_HOME to a Java of version {java.LEAST} or newer"
        )
    return Check("java", "ok", found)


def look_at_workers() -> Check:
    """Sessions that somebody else makes run the Python that PYSPARK_PYTHON names, or the first `python3`."""
    named = os.environ.get("PYSPARK_PYTHON")
    found = shutil.which(named or "python3")
    where = f"Spark's own sessions run {found or named or 'no python3'} in their workers"
    if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
        return Check("workers", "ok", where)
    todo = "not this Python: make sessions with tws.session(), give yours to tws.register(…), or set PYSPARK_PYTHON=" + sys.executable
    return Check("workers", "ok", where, todo)


def look_at_spark() -> Check:
    command = [sys.executable, "-m", "tidewheel.spark.smoke_test"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, stdin=subprocess.DEVNULL)
        return judge_spark(done.stdout, done.stderr, _logs())
    except subprocess.TimeoutExpired:
        return Check("spark", "problem", f"did not finish a small job in {_TRIAL_SECONDS} s", "see what it hangs on in its log: " + _logs())


def _logs() -> str:
    from tidewheel.spark.user_folders import log_folder

    return str(log_folder())


# ---- the warehouse's folder ------------------------------------------------------------------------------


def look_at_folder(root: Path) -> list[Check]:
    """Whether a warehouse can live there: write, lock, map, listen; and how much room there is."""
    there = root
    while not there.exists():
        there = there.parent
    found = str(root) + ("" if there == root else f" (not there yet; looked at {there})")
    if not there.is_dir():
        return [Check("folder", "problem", found, f"{there} is a file: choose another path")]
    try:
        trial = Path(tempfile.mkdtemp(prefix=".tw", dir=there))
    except OSError as e:
        return [Check("folder", "problem", f"{found} cannot be written to: {e.strerror}", "change its permissions, or choose another one")]
    try:
        faults = [fault for fault in (_lock_fault(trial), _map_fault(trial)) if fault]
        stamp = trial / "clock"
        before = time.time()
        stamp.touch()
        usage = shutil.disk_usage(there)
        fit = Check("folder", "ok", f"{found}: can be written, locked and mapped{_owner(root)}")
        if faults:
            todo = "use a folder on a local disk; folders on some network file systems cannot hold a warehouse"
            fit = Check("folder", "problem", f"{found}: {'; '.join(faults)}", todo)
        return [fit, _socket(root, trial), judge_disk(usage.free, usage.total), judge_clock(before, stamp.stat().st_mtime)]
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _lock_fault(trial: Path) -> str:
    """Two opens of one file must not both get the lock: that is what keeps two owners apart."""
    try:
        with (trial / "lock").open("w") as one, (trial / "lock").open("w") as other:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return ""
            return "locks keep nobody out"
    except OSError as e:
        return f"files cannot be locked ({e.strerror})"


def _map_fault(trial: Path) -> str:
    try:
        (trial / "map").write_bytes(b"tide" * 1024)
        with (trial / "map").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return "" if mapped[:4] == b"tide" else "mapped files have other bytes"
    except (OSError, ValueError) as e:
        return f"files cannot be mapped into memory ({e})"


def _socket(root: Path, trial: Path) -> Check:
    """Other processes reach the owner by a socket in the root, or else by a loopback port."""
    if address.folder(root).is_dir():
        possible = address.socket_path(root, 0)
    else:
        possible = address.socket_path(trial, 0) if address.make_folder(trial) else None
    return Check("attach", "ok", "through a Unix socket" if possible else "through a loopback port: a socket cannot be made there")


def _owner(root: Path) -> str:
    try:
        return ", and is in use now" if address.is_owned(root) else ""
    except TidewheelError:
        return ""
