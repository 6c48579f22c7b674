"""Slots: which group each row of a block is in."""
