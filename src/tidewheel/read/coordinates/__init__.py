"""Boxes of z-order keys, leaf by leaf: what the zone maps of the coordinates say of them."""
