"""What of the texts of a block is to be looked up."""
