"""Texts as numbers of eight bytes."""
