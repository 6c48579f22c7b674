"""Do once what would otherwise slow down every first time: compile the kernels and cache them, archive the classes that Spark loads."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

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


def kernels() -> list[Any]:
    """All of them, Numba's own objects, compiled now or taken from the cache."""
    import tidewheel.index.kernels
    import tidewheel.model.jit.kernels
    import tidewheel.model.kernels
    import tidewheel.model.text.kernels
    import tidewheel.read.coordinates.kernels
    import tidewheel.read.filters.kernels
    import tidewheel.read.filters.texts.kernels
    import tidewheel.read.groups.blocks.kernels
    import tidewheel.read.groups.joining.kernels
    import tidewheel.read.groups.kernels
    import tidewheel.read.groups.numbers.kernels
    import tidewheel.read.groups.partitions.kernels
    import tidewheel.read.groups.partitions.windows.kernels
    import tidewheel.read.groups.slots.kernels
    import tidewheel.read.groups.sums.kernels
    import tidewheel.read.groups.texts.keeping.kernels
    import tidewheel.read.groups.texts.kernels
    import tidewheel.read.kernels
    import tidewheel.read.last.kernels
    import tidewheel.read.texts.kernels
    import tidewheel.read.top.kernels
    import tidewheel.read.totals.filtered.kernels
    import tidewheel.read.totals.kernels
    import tidewheel.write.kernels
    import tidewheel.write.sound.kernels

    return [tidewheel.model.jit.kernels.ready(*one) for one in tidewheel.model.jit.kernels.KERNELS]


if __name__ == "__main__":
    main()
