"""Verdicts of `tidewheel doctor` on the facts it found. Pure: facts in, verdicts out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GB = 1 << 30
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


def judge_python(version: tuple[int, ...], bits: int, system: str, executable: str) -> Check:
    found = f"{'.'.join(map(str, version))}, {bits} bit, {system}, {executable}"
    if version < (3, 11):
        return Check("python", "problem", found, "Tidewheel needs Python 3.11 or newer")
    if bits != 64:
        return Check("python", "problem", found, "Tidewheel needs a 64-bit Python")
    if system not in ("Linux", "Darwin"):
        return Check("python", "problem", found, "Tidewheel runs on Linux and macOS")
    return Check("python", "ok", found)


def judge_packages(required: Sequence[str], installed: Mapping[str, str]) -> list[Check]:
    """One check for what Tidewheel always needs, one for what Spark needs."""
    found = []
    for name, extra, install in (("packages", "", "pip install -U tidewheel"), ("pyspark", "spark", "pip install -U 'tidewheel[spark]'")):
        have, lack, wrong = [], [], []
        for line in required:
            package, bounds, of = requirement(line)
            version = installed.get(package)
            if of != extra:
                continue
            if version is None:
                lack += [package] if "platform" not in line else []  # it is not for every platform, so it can be done without
            elif not _fits(version, bounds):
                wrong.append(f"{package} {version} (wanted: {bounds})")
            else:
                have.append(f"{package} {version}")
        said = ", ".join(have + [f"no {package}" for package in lack] + wrong)
        verdict = "ok" if not lack and not wrong else "problem" if wrong or not extra else "warning"
        only = " (only for pipelines on Spark)" if verdict == "warning" else ""
        found.append(Check(name, verdict, said, "" if verdict == "ok" else install + only))
    return found


def requirement(line: str) -> tuple[str, str, str]:
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


def judge_kernels(compiled: int, places: Sequence[str]) -> Check:
    if not places:
        todo = "set NUMBA_CACHE_DIR to a folder that can be written to"
        return Check("kernels", "warning", "compiled anew in every process, which takes seconds", todo)
    return Check("kernels", "ok", "compiled just now, and cached" if compiled else "compiled and cached")


def judge_spark(printed: str, complaints: str, logs: str) -> Check:
    try:
        said = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (complaints.strip().splitlines() or ["it said nothing"])[-1]
        return Check("spark", "problem", f"the trial run ended early: {last}", "its log may say why: " + logs)
    if "error" in said:
        return Check("spark", "problem", "does not run", said["error"])
    found = f"{said['spark']}: started in {said['start']:.1f} s, small jobs and a stream took {said['jobs']:.1f} s"
    return Check("spark", "ok", found, "" if said["archive"] else "starts faster after: python -m tidewheel.surfaces.warm")


def judge_memory(total: int) -> Check:
    found = f"{total / GB:.1f} GB"
    if total < GB:
        return Check("memory", "problem", found, "give this machine or container at least 1 GB, 4 GB with Spark")
    if total < 4 * GB:
        return Check("memory", "warning", found, "enough without Spark; with it, have 4 GB")
    return Check("memory", "ok", found)


def judge_files(limit: int) -> Check:
    if 0 <= limit < 1024:
        return Check(
            "files", "warning", f"this process may open {limit} at once", "ulimit -n 4096, or many chunks and clients may be too many"
        )
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
