"""Blocks: which rows of the segments are looked at together."""
