"""Surfaces for people: the command line and the shell. Thin; the decisions are made below."""
