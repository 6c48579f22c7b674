"""`tidewheel doctor`: is this machine fit for Tidewheel, and if not, what is to be done?

`checks` looks at everything and returns what it found as data; `doctor` prints that. Nothing is changed, but for a hidden folder that is
made beside the data for a moment. Functions named `judge_…` decide and are pure; those named `look_at_…` look.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import platform
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tidewheel.cluster import address
from tidewheel.env.memory import machine_memory
from tidewheel.errors import SparkError, TidewheelError

GB = 1 << 30
_TRIAL_SECONDS = 240
_SKEW_SECONDS = 2.0
_RELEASED = 1_767_225_600
"""2026-01-01: no clock that is right shows less."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: str
    """ok, warning (it works, but) or problem."""
    found: str
    todo: str = ""


def doctor(warehouse: str | None, deep: bool) -> int:
    """Print all checks. 0: there is no problem, 1: there is one."""
    console = Console(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "problem": "red"}
    found = []
    with console.status("looking around") if console.is_terminal else suppress():
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


def checks(warehouse: str | None = None, deep: bool = False) -> Iterable[Check]:
    """Everything, one by one, as it is found. `deep` also starts Spark."""
    yield judge_python(sys.version_info[:3], struct.calcsize("P") * 8, platform.system(), sys.executable)
    yield from look_at_packages()
    yield look_at_java()
    if deep:
        yield look_at_spark()
    yield judge_memory(machine_memory())
    yield judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield look_at_kernels()
    yield from look_at_folder(Path(warehouse or ".").expanduser().resolve())


# ---- Python ---------------------------------------------------------------------------------------------


def judge_python(version: tuple[int, ...], bits: int, system: str, executable: str) -> Check:
    found = f"{'.'.join(map(str, version))}, {bits} bit, {system}, {executable}"
    if version < (3, 11):
        return Check("python", "problem", found, "Tidewheel needs Python 3.11 or newer")
    if bits != 64:
        return Check("python", "problem", found, "Tidewheel needs a 64-bit Python")
    if system not in ("Linux", "Darwin"):
        return Check("python", "problem", found, "Tidewheel runs on Linux and macOS")
    return Check("python", "ok", found)


def look_at_packages() -> list[Check]:
    try:
        required = metadata.requires("tidewheel") or []
    except metadata.PackageNotFoundError:
        return [Check("packages", "warning", "Tidewheel itself is not installed, so nothing is known of what it needs", "pip install tidewheel")]
    installed = {}
    for line in required:
        name = _requirement(line)[0]
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return judge_packages(required, installed)


def judge_packages(required: Sequence[str], installed: Mapping[str, str]) -> list[Check]:
    """One check for what Tidewheel always needs, one for what Spark needs."""
    found = []
    for name, extra, install in (("packages", "", "pip install -U tidewheel"), ("pyspark", "spark", "pip install -U 'tidewheel[spark]'")):
        have, lack, wrong = [], [], []
        for package, bounds, of in map(_requirement, required):
            version = installed.get(package)
            if of != extra:
                continue
            if version is None:
                lack.append(package)
            elif not _fits(version, bounds):
                wrong.append(f"{package} {version} (wanted: {bounds})")
            else:
                have.append(f"{package} {version}")
        said = ", ".join(have + [f"no {package}" for package in lack] + wrong)
        verdict = "ok" if not lack and not wrong else "problem" if wrong or not extra else "warning"
        only = " (only for pipelines on Spark)" if verdict == "warning" else ""
        found.append(Check(name, verdict, said, "" if verdict == "ok" else install + only))
    return found


def _requirement(line: str) -> tuple[str, str, str]:
    """(name, bounds, extra) of a requirement in a package's metadata."""
    found = re.match(r"([\w.-]+)\s*([^;]*?)\s*(?:;.*extra == ['\"](\w+)['\"].*)?$", line)
    assert found is not None, line
    return found[1].lower(), found[2], found[3] or ""


def _fits(version: str, bounds: str) -> bool:
    """Whether a version is within bounds like `<3,>=2.0`."""
    have = _numbers(version)
    for sign, bound in re.findall(r"(>=|<=|==|<|>)\s*([\d.]+)", bounds):
        want = _numbers(bound)
        have_, want_ = (part + (0,) * (max(len(have), len(want)) - len(part)) for part in (have, want))
        if not {">=": have_ >= want_, "<=": have_ <= want_, "==": have_ == want_, "<": have_ < want_, ">": have_ > want_}[sign]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


def look_at_kernels() -> Check:
    """Compiles them if nobody has; that they are cached is what counts."""
    from tidewheel.surfaces.warm import kernels

    misses, places = 0, set()
    for module in kernels():
        for thing in vars(module).values():
            stats = getattr(thing, "stats", None)
            if getattr(stats, "cache_hits", None) or getattr(stats, "cache_misses", None):
                misses += sum(stats.cache_misses.values())
                places.add(stats.cache_path)
    return judge_kernels(misses, sorted(place for place in places if place))


def judge_kernels(compiled: int, places: Sequence[str]) -> Check:
    if not places:
        todo = "set NUMBA_CACHE_DIR to a folder that can be written to"
        return Check("kernels", "warning", "compiled anew in every process, which takes seconds", todo)
    return Check("kernels", "ok", "compiled just now, and cached" if compiled else "compiled and cached")


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
        return Check("java", "warning", found, f"passed over: {', '.join(passed)}; set JAVA_HOME to a Java of version {java.LEAST} or newer")
    return Check("java", "ok", found)


def look_at_spark() -> Check:
    command = [sys.executable, "-m", "tidewheel.spark.trial"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, stdin=subprocess.DEVNULL)
        return judge_spark(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        return Check("spark", "problem", f"did not finish a small job in {_TRIAL_SECONDS} s", "see what it hangs on in its log: " + _logs())


def judge_spark(printed: str, complaints: str) -> Check:
    try:
        said = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (complaints.strip().splitlines() or ["it said nothing"])[-1]
        return Check("spark", "problem", f"the trial run ended early: {last}", "its log may say why: " + _logs())
    if "error" in said:
        return Check("spark", "problem", "does not run", said["error"])
    found = f"{said['spark']}: started in {said['start']:.1f} s, small jobs and a stream took {said['jobs']:.1f} s"
    return Check("spark", "ok", found, "" if said["archive"] else "starts faster after: python -m tidewheel.surfaces.warm")


def _logs() -> str:
    from tidewheel.spark.folders import log_folder

    return str(log_folder())


# ---- the machine ----------------------------------------------------------------------------------------


def judge_memory(total: int) -> Check:
    found = f"{total / GB:.1f} GB"
    if total < GB:
        return Check("memory", "problem", found, "give this machine or container at least 1 GB, 4 GB with Spark")
    if total < 4 * GB:
        return Check("memory", "warning", found, "enough without Spark; with it, have 4 GB")
    return Check("memory", "ok", found)


def judge_files(limit: int) -> Check:
    if 0 <= limit < 1024:
        return Check("files", "warning", f"this process may open {limit} at once", "ulimit -n 4096, or many chunks and clients may be too many")
    return Check("files", "ok", f"this process may open {'any number' if limit < 0 else limit} at once")


def judge_disk(free: int, total: int) -> Check:
    found = f"{free / GB:.1f} of {total / GB:.0f} GB free"
    if free < 256 << 20:
        return Check("disk", "problem", found, "make room: inserts fail when the disk is full")
    if free < 2 * GB:
        return Check("disk", "warning", found, "make room soon")
    return Check("disk", "ok", found)


def judge_clock(now: float, of_file: float) -> Check:
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _RELEASED:
        return Check("clock", "problem", found, "set the clock: late rows are told by it")
    if abs(now - of_file) > _SKEW_SECONDS:
        found += f", but the file system's is {of_file - now:+.1f} s off"
        return Check("clock", "warning", found, "synchronise the clocks of this machine and its file server")
    return Check("clock", "ok", found)


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
        if faults:
            todo = "use a folder on a local disk; folders on some network file systems cannot hold a warehouse"
            yield_folder = Check("folder", "problem", f"{found}: {'; '.join(faults)}", todo)
        else:
            yield_folder = Check("folder", "ok", f"{found}: can be written, locked and mapped{_owner(root)}")
        return [yield_folder, _socket(root, trial), judge_disk(usage.free, usage.total), judge_clock(before, stamp.stat().st_mtime)]
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
