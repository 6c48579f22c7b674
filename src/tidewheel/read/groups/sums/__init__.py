"""What groups come to: the values of a block, added to those of their groups."""
