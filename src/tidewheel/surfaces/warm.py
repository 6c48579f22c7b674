"""Do once what would otherwise slow down every first time: compile the kernels and cache them, archive the classes that Spark loads."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

from tidewheel.errors import TidewheelError


def main() -> None:
    began = time.perf_counter()
    kernels()
    print(f"kernels compiled and cached in {time.perf_counter() - began:.1f} s")
    if importlib.util.find_spec("pyspark") is None:
        return
    from tidewheel.spark import class_archive

    began = time.perf_counter()
    try:
        if class_archive.make() is not None:
            print(f"Spark's classes archived in {time.perf_counter() - began:.1f} s")
    except (TidewheelError, OSError) as e:  # Spark runs without, or cannot run at all: `tidewheel doctor` says more
        print(f"Spark's classes are not archived: {e}")


def kernels() -> list[ModuleType]:
    """The modules with kernels: they compile when they are imported, or come from the cache."""
    import tidewheel.index.kernels
    import tidewheel.model.kernels
    import tidewheel.model.text.kernels
    import tidewheel.read.kernels
    import tidewheel.read.texts.kernels
    import tidewheel.read.totals.kernels
    import tidewheel.write.kernels
    import tidewheel.write.sound.kernels

    return [
        tidewheel.index.kernels,
        tidewheel.model.kernels,
        tidewheel.model.text.kernels,
        tidewheel.read.kernels,
        tidewheel.read.texts.kernels,
        tidewheel.read.totals.kernels,
        tidewheel.write.kernels,
        tidewheel.write.sound.kernels,
    ]


if __name__ == "__main__":
    main()
