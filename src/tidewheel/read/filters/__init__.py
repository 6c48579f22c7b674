"""Conditions that are decided where rows lie: written as programs, which a kernel interprets over blocks of rows."""
