"""For tests, ours and our users': a slow and obvious table, and random schemas, batches and queries. Imported by nobody inside."""
