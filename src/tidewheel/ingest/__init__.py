"""Records to rows: formats of messages and files, the types of their columns, and what becomes of records that are no rows. No Spark."""
