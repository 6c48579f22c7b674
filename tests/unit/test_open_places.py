"""The folder that a warehouse is opened in: made if it is not there, refused if it is for something else, and never littered."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidewheel as tw
from tidewheel.cluster.start_owner import summon
from tidewheel.surfaces import cli


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_create_false_makes_nothing(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(tw.NotFoundError, match="there is no warehouse in .*create=False"):
            tw.open(place, create=False)
    assert below(tmp_path) == []
    tw.open(tmp_path / "wh").close()
    with tw.open(tmp_path / "wh", create=False) as wh, tw.open(tmp_path / "wh", create=False) as again:
        assert wh.tables() == again.tables() == []


def test_a_folder_with_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rides.csv").write_text("a,b\n")
    for n in range(5):
        (tmp_path / f"x{n}").mkdir()
    before = below(tmp_path)
    with pytest.raises(tw.InputError, match="is no warehouse, and other things are in it: rides.csv, x0, x1 and 3 more"):
        tw.open(tmp_path)
    with pytest.raises(tw.InputError, match="is no warehouse, and other things are in it"):
        summon(tmp_path, limit=1)
    assert below(tmp_path) == before


def test_what_may_be_there_before(tmp_path: Path) -> None:
    """Settings, and what systems leave lying about."""
    for name in ("tidewheel.toml", ".DS_Store"):
        (tmp_path / name).write_text("")
    (tmp_path / "lost+found").mkdir()
    with tw.open(tmp_path) as wh:
        assert wh.tables() == []
    (tmp_path / "notes.txt").write_text("mine")
    with tw.open(tmp_path) as wh:
        assert wh.tables() == [], "a warehouse stays one, whatever is put beside it"


def test_there_is_none_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tw.InputError, match="a warehouse is a folder; there is none in memory"):
        tw.open(":memory:")
    assert below(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        ["sql", "-c", "SELECT 1"], ["status"], ["describe", "t"], ["explain", "t"], ["refresh"], ["check"], ["backup", "there"],
        ["load", "t", "rides.csv"],
    ],
)  # fmt: skip
def test_commands_make_no_warehouse_by_a_typo(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rides.csv").write_text("id,ts\n1,2026-01-01\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "-w", "typo"]) == 1
    assert "typo" in capsys.readouterr().err and below(tmp_path) == ["rides.csv"]


def test_a_file_that_was_mistyped_makes_no_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["load", "t", "nofile.csv", "-w", "new", "--time", "ts", "--key", "id"]) == 1
    assert below(tmp_path) == []


def test_load_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.csv": "id,ts\n1,2026-01-01\n2,2026-01-01\n", "b.csv": "id,ts\nx,2026-01-01\n3,2026-01-01\n"}.items():
        (tmp_path / name).write_text(text)
    assert cli.main(["load", "t", "*.csv", "-w", "wh", "--time", "ts", "--key", "id"]) == 0
    out = capsys.readouterr().out
    assert "Table t created: id int64, ts date32[day]" in out and "3 rows of 2 files loaded into t" in out and "system.rejects" in out
    assert cli.main(["load", "t", "a.csv", "-w", "wh", "--format", "json"]) == 0
    assert '"duplicate": true' in capsys.readouterr().out
    (tmp_path / "c.parquet").write_text("no")
    assert cli.main(["load", "t", "a.csv", "c.parquet", "-w", "wh"]) == 1
    out = capsys.readouterr().out
    assert "c.parquet: the file cannot be read" in out and "1 file not loaded" in out
