"""Numbers of a block of rows: the values of a column, and what steps make of them."""
