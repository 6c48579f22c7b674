"""Settings from tidewheel.toml and the environment: what is there, which wins, and what is said of what is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import tidewheel as tw
from tidewheel.errors import SettingsError
from tidewheel.surfaces import cli
from tidewheel.surfaces.configuration import OTHERS, from_environment, settings_of


def test_nothing_configured_is_none(tmp_path: Path) -> None:
    assert settings_of(tmp_path, {}) is None
    assert settings_of(tmp_path / "not there", {"PATH": "/bin", "TIDEWHEEL_WAREHOUSE": "x", "TIDEWHEEL_SOAK": "1"}) is None
    (tmp_path / "file").write_text("")
    assert settings_of(tmp_path / "file", {}) is None


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "tidewheel.toml").write_text('durability = "fsync"\nlate_after = 5\nquery_bytes = "none"\nmap_chunks = false\n')
    assert settings_of(tmp_path, {}) == tw.Settings(durability="fsync", late_after=5, query_bytes=None, map_chunks=False)
    environment = {"TIDEWHEEL_LATE_AFTER": "2.5", "TIDEWHEEL_MAP_CHUNKS": "true", "TIDEWHEEL_QUERY_SECONDS": "None"}
    assert settings_of(tmp_path, environment) == tw.Settings(durability="fsync", late_after=2.5, query_bytes=None)


def test_every_setting_can_be_given_as_a_text() -> None:
    """What a setting is by default, written as a text, is itself."""
    environment = {f"TIDEWHEEL_{f.name.upper()}": str(getattr(tw.Settings(), f.name)) for f in fields(tw.Settings)}
    assert tw.Settings.of(from_environment(environment)) == tw.Settings()
    assert not OTHERS & {f.name.upper() for f in fields(tw.Settings)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('durabilty = "fsync"', "tidewheel.toml: there is no setting 'durabilty'. Did you mean 'durability'?"),
        ('durability = "prayer"', "tidewheel.toml: durability is one of"),
        ("chunk_bytes = 1.5e6", "tidewheel.toml: chunk_bytes must be a whole number"),
        ("chunk_bytes = 1", "tidewheel.toml: chunk_bytes must be a number of at least 4096"),
        ("leaf_rows = 'none'", "tidewheel.toml: leaf_rows must be a number"),
        ("[settings]\nleaf_rows = 9", "there is no setting 'settings'"),
        ("durability = ", "is not TOML"),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tidewheel.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        settings_of(tmp_path, {})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TIDEWHEEL_CHUNK_BITES", "1", "there is no setting 'chunk_bites'. Did you mean 'TIDEWHEEL_CHUNK_BYTES'?"),
        ("TIDEWHEEL_WAREHOUS", "x", "Did you mean 'TIDEWHEEL_WAREHOUSE'?"),
        ("TIDEWHEEL_CHUNK_BYTES", "many", "TIDEWHEEL_CHUNK_BYTES: chunk_bytes is a number, not 'many'"),
        ("TIDEWHEEL_CHUNK_BYTES", "none", "chunk_bytes is a number, not 'none'"),
        ("TIDEWHEEL_MAP_CHUNKS", "maybe", "map_chunks is true or false, not 'maybe'"),
        ("TIDEWHEEL_DURABILITY", "prayer", "TIDEWHEEL_DURABILITY: durability is one of"),
    ],
)
def test_what_is_wrong_in_the_environment(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings_of(tmp_path, {name: text})
    assert said in str(error.value)


def test_commands_have_them_and_say_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "wh"
    root.mkdir()
    (root / "tidewheel.toml").write_text("indexing_servers = 3\n")
    argv = ["-w", str(root)]
    assert cli.main(["create", "t", *argv, "--column", "k:int64", "--column", "ts:timestamp", "--key", "k"]) == 0
    monkeypatch.setenv("TIDEWHEEL_LEAF_ROWS", "64")
    capfd.readouterr()
    assert cli.main(["sql", *argv, "-c", "SELECT name, value FROM system.settings WHERE changed ORDER BY 1", "--format", "csv"]) == 0
    assert capfd.readouterr().out == "name,value\nindexing_servers,3\nleaf_rows,64\n"
    assert cli.main(["check", *argv]) == 0, "the file is no file too many"
    assert cli.main(["backup", str(tmp_path / "b"), *argv]) == 0
    monkeypatch.setenv("TIDEWHEEL_LEAVES", "64")
    for command in (
        ["sql", "-c", "SELECT 1"],
        ["status"],
        ["explain", "t"],
        ["backup", str(tmp_path / "b")],
        ["ingest", "t", "--from", "rate://1"],
    ):
        assert cli.main([*command, *argv]) == 1
        assert "TIDEWHEEL_LEAVES, and there is no setting 'leaves'" in capfd.readouterr().err, command


def test_an_owner_that_is_started_for_others_has_them(tmp_path: Path) -> None:
    from tidewheel.cluster.start_owner import summon

    root = tmp_path / "wh"
    root.mkdir()
    (root / "tidewheel.toml").write_text("leaf_rows = 77\n")
    engine = summon(root, idle=0.1)
    try:
        assert engine.settings.leaf_rows == 77
    finally:
        engine.close()
