"""Of each group one text: the first, the last, or the one that goes with the first or the last of something else."""
