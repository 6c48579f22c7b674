"""What flows: schemas, codes, regions, queries and answers as plain values. No I/O."""
