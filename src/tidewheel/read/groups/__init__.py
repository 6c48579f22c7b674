"""Groups of the rows that a query finds, made where the rows lie."""
