"""Whether columns from outside are sound, by their addresses."""
