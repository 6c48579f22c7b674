"""Written bytes begin their way to the disk before they are synced: a hint, which changes nothing that can be seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tidewheel.env import disk, writing_out
from tidewheel.env.disk import Disk
from tidewheel.env.local_files import LocalFiles


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others have no such call")
def test_the_system_has_the_call(tmp_path: Path) -> None:
    call = writing_out._sync_file_range()
    assert call is not None
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"x" * 10_000)
    assert call(descriptor, 0, 0, writing_out._WRITE) == 0
    os.close(descriptor)


def test_a_file_is_hinted_at_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr(disk, "begin_writing_out", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    files = LocalFiles(tmp_path)
    assert files.write("file", lambda sink: sink.write(b"some bytes")) == 10 and sizes == [10]
    files.appear(["file"])
    assert files.read("file").to_pybytes() == b"some bytes"


def test_what_cannot_be_hinted_at_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError

    monkeypatch.setattr(disk, "begin_writing_out", fails)
    assert LocalFiles(tmp_path).write("file", lambda sink: sink.write(b"bytes")) == 5
    monkeypatch.undo()
    Disk().begin_writing_out(pa.PythonFile(pa.BufferOutputStream(), "w"))  # as that of a twin: it has no descriptor
    monkeypatch.setattr(writing_out, "_sync_file_range", lambda: None)  # another system
    writing_out.begin_writing_out(-1)
