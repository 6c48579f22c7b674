"""Rows whose groups are near each other."""
