"""DuckDB, one for the whole house: connections, parsing, functions, expressions over rows, and every private name of its that is used."""
