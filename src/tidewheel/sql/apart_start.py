"""Starts the program of a worker, as quickly as may be."""

from __future__ import annotations

from tidewheel.env.without_pandas import keep_out

if __name__ == "__main__":
    keep_out()
    from tidewheel.sql.apart_process import main

    main()
