"""The first rows in some order: what cannot be among them is passed over where it lies, without copying or sorting it."""
