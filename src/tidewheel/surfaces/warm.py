"""Compile all kernels and cache them, so that the first insert and the first query do not have to."""

from __future__ import annotations

import time


def main() -> None:
    began = time.perf_counter()
    import tidewheel.index.kernels
    import tidewheel.model.kernels
    import tidewheel.read.kernels
    import tidewheel.write.kernels  # noqa: F401

    print(f"kernels compiled and cached in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
