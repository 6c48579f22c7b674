"""The script behind docs/choosing.md, over a few made-up rows: all tables give the same answers, or it stops."""

from __future__ import annotations

import sys

import pytest

from benchmarks import choosing


def test_it_prints_three_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(choosing, "RUNS", 1)
    monkeypatch.setattr(sys, "argv", ["choosing", "--rows", "3000"])
    choosing.main()
    head, *tables = capsys.readouterr().out.strip().split("\n\n")
    assert head.startswith("generated rows") and len(tables) == 3
    keys, widths, disk = (table.splitlines() for table in tables)
    assert len(keys) == 9 and len(widths) == 10 and len(disk) == 5
    asked = {line.split(" | ")[0].strip("| ") for line in keys[3:]}
    assert asked <= {line.split(" | ")[0].strip("| ") for line in widths}
