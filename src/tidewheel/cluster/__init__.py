"""Many processes: owner and attach, over Arrow Flight."""
