"""Plain totals of the rows that satisfy a condition, where they lie."""
