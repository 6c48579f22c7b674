"""Plain totals of the rows that a query finds (count, sum, min, max, avg), without copying the rows and without DuckDB."""
