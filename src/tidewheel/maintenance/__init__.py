"""What keeps a warehouse whole: check it, back it up, restore it."""
