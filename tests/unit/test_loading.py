"""Modules that are loaded late: by the first look, once, by whatever thread; and no process is forked meanwhile."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidewheel.model import loading
from tidewheel.model.loading import later, loaded


def test_the_first_look_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_late.py").write_text("import time\ntime.sleep(0.05)\nvalue = [1]\n")
    module = later("loaded_late")
    assert "loaded_late" not in sys.modules
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018 — what looks at any object loads nothing
    assert copy.copy(module) is not module and "loaded_late" not in sys.modules
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: module.value, range(8)))
    assert all(one is found[0] for one in found) and found[0] == [1]
    assert module.value is found[0] is loaded("loaded_late").value
    with pytest.raises(AttributeError, match="nothing_of_it"):
        module.nothing_of_it  # noqa: B018


@pytest.mark.filterwarnings("ignore:This process .*:DeprecationWarning")
def test_no_process_is_forked_while_a_module_is_loaded() -> None:
    inside, over = threading.Event(), []

    def load() -> None:
        with loading._loading:
            inside.set()
            time.sleep(0.2)
            over.append(True)

    thread = threading.Thread(target=load)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        os._exit(0 if over and loading._loading.acquire(timeout=10) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_kernels_are_loaded_by_their_first_call() -> None:
    code = """
import sys
import numpy as np
from tidewheel.index.regions import RegionIndex
index = RegionIndex(np.zeros((3, 4), np.int64))
assert "numba" not in sys.modules
assert index.search(0, 0, 0, 0).tolist() == [0, 1, 2]
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
