"""Kernels that look at columns from outside by their addresses: whether these are sound."""
