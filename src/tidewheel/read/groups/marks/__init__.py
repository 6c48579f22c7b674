"""Marks of the texts that a group has had."""
