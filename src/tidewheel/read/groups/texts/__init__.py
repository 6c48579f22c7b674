"""Texts as numbers: each is given one when it is first seen."""
