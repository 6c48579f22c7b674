"""Programs that use the public surface alone: the demo, and the torture that looks for rows that were lost."""
