"""The settings of commands that open a warehouse: `tidewheel.toml` in its root, and above it variables `TIDEWHEEL_…` of the environment.

A setting belongs to a warehouse, so the file lies in the warehouse's root: whoever owns it next, from wherever, has the same. Python code
gives `tw.Settings` to `tw.open` itself.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tidewheel.errors import SettingsError
from tidewheel.settings import Settings
from tidewheel.surfaces.arguments import near

FILE = "tidewheel.toml"
PREFIX = "TIDEWHEEL_"

OTHERS = {"WAREHOUSE", "SLOTS", "SOAK", "SOAK_SECONDS", "SEED", "CASE"}
"""Variables with our prefix that are no settings: the warehouse, what tasks on Spark are told, and what tests are."""

_TYPES = {f.name: str(f.type) for f in fields(Settings)}


def settings_of(root: Path, environment: Mapping[str, str] | None = None) -> Settings | None:
    """The settings configured for this warehouse; None without any. An unknown name or an impossible value is an error that says where."""
    found: dict[str, Any] = {}
    path = root / FILE
    try:
        found = from_toml(path.read_bytes(), str(path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as e:
        raise SettingsError(f"cannot read {path}: {e.strerror or e}") from e
    found |= from_environment(os.environ if environment is None else environment)
    return Settings.of(found) if found else None


def from_toml(data: bytes, path: str) -> dict[str, Any]:
    """The settings that a file gives."""
    try:
        said = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise SettingsError(f"{path} is not TOML: {e}") from None
    found = {}
    for name, value in said.items():
        if name not in _TYPES:
            raise SettingsError(f"{path}: there is no setting {name!r}.{near(name, _TYPES)} Settings: {', '.join(_TYPES)}")
        found[name] = _checked(name, None if value == "none" and _may_be_none(name) else value, path)
    return found


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that variables give."""
    found = {}
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in OTHERS:
            continue
        setting = name.lower()
        if setting not in _TYPES:
            known = [PREFIX + one.upper() for one in ("warehouse", *_TYPES)]
            raise SettingsError(f"the environment has {variable}, and there is no setting {setting!r}.{near(variable, known)} Unset it")
        found[setting] = _checked(setting, _parsed(setting, environment[variable].strip(), variable), variable)
    return found


def _parsed(name: str, text: str, place: str) -> Any:
    """The value that a text stands for."""
    kind = _TYPES[name]
    if kind == "str":
        return text
    if text.lower() == "none" and _may_be_none(name):
        return None
    if kind == "bool":
        if text.lower() not in ("true", "false", "1", "0"):
            raise SettingsError(f"{place}: {name} is true or false, not {text!r}")
        return text.lower() in ("true", "1")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{place}: {name} is a number, not {text!r}") from None


def _checked(name: str, value: Any, place: str) -> Any:
    """Each for itself, so that the error can say where it was given."""
    try:
        Settings.of({name: value})
    except SettingsError as e:
        raise SettingsError(f"{place}: {e}") from None
    return value


def _may_be_none(name: str) -> bool:
    return "None" in _TYPES[name]
