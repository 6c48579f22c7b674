"""Tidewheel beside DuckDB and chDB on the same machine, the same rows and the same questions."""
