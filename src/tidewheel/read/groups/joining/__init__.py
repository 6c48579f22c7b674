"""Groups of one part of the rows, joined with those of another."""
