"""Runs of rows whose groups are known to be one."""
