"""What people who know Python or SQL type first works, on rows of public data sets; and each typical mistake gets its sentence."""

from __future__ import annotations

from pathlib import Path

from tests.integration import python_trial, sql_trial


def test_python(tmp_path: Path) -> None:
    assert len(python_trial.FIRST) >= 60 and len(python_trial.MISTAKES) >= 40
    assert not (wrong := python_trial.typed(tmp_path)), "\n".join(wrong)


def test_sql(tmp_path: Path) -> None:
    assert len(sql_trial.ASKED) + len(sql_trial.OURS) >= 60 and len(sql_trial.MISTAKES) >= 40
    assert not (wrong := sql_trial.typed(tmp_path)), "\n".join(wrong)
