"""Windows: the groups of one partition, added up where a core has them near."""
