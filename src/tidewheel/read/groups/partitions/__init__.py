"""Groups by a key of very many values: rows are put by the ranges of their keys, and each range is added up by itself."""
