"""For all tests of several processes: a root, an owner of it in this very process, and an engine that is attached to that owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.client import attach
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.settings import Settings
from tidewheel.testing.probe import listener_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return (tmp_path / "wh").resolve()


@pytest.fixture
def owned(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnedEngine]:
    """An owner in this very process: whoever attaches to it goes over the wire all the same."""
    monkeypatch.setattr("tidewheel.cluster.handlers._SOON", 60.0)  # few rows come with their answer, however slow the machine is
    engine = OwnedEngine(root, Settings())
    assert listener_of(engine).wait(60)
    assert listener_of(engine).failure is None
    yield engine
    engine.close()


@pytest.fixture
def attached(owned: OwnedEngine) -> Iterator[AttachedEngine]:
    engine = attach(owned.root)
    yield engine
    engine.close()
