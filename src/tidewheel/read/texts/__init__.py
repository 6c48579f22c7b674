"""Texts where they lie: which of them a query asks for, and copies of them."""
