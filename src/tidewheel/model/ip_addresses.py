"""IP addresses and networks as texts and as numbers, in one order: all of version 4 before all of version 6."""

from __future__ import annotations

import ipaddress
from typing import Any

from tidewheel.errors import QueryError

Address = tuple[int, int]
"""Version and number: they rise as keys do, which their texts do not."""

_BITS = {4: 32, 6: 128}


def address_of(value: Any) -> Address | None:
    """None if it is no address."""
    try:
        found = ipaddress.ip_address(value.decode() if isinstance(value, bytes) else value)
    except (ValueError, AttributeError):
        return None
    return found.version, int(found)


def address_text(address: Address) -> str:
    return str(ipaddress.IPv4Address(address[1]) if address[0] == 4 else ipaddress.IPv6Address(address[1]))


def is_network(value: Any) -> bool:
    """Whether it is meant to be a network."""
    return isinstance(value, str) and "/" in value or isinstance(value, (ipaddress.IPv4Network, ipaddress.IPv6Network))


def network_of(value: Any) -> tuple[Address, Address]:
    """The first and the last address of a network, such as 10.0.0.0/8. Raises QueryError if it is none."""
    text = str(value)
    start, _, size = text.partition("/")
    first = address_of(start)
    if first is None or not size.isascii() or not size.isdecimal() or int(size) > _BITS[first[0]]:
        try:
            named = ipaddress.ip_network(text, strict=False)  # by a mask, as in 10.0.0.0/255.0.0.0
        except ValueError:
            hint = "write the first address and the number of its fixed bits, as in '10.0.0.0/8'"
            raise QueryError(f"{text!r} is no network: {hint}") from None
        first, size = (named.version, int(ipaddress.ip_address(start))), str(named.prefixlen)
    rest = (1 << _BITS[first[0]] - int(size)) - 1
    if first[1] & rest:
        meant = f"{address_text((first[0], first[1] & ~rest))}/{size}"
        raise QueryError(f"{text!r} is an address within a network, and not its first; the network is {meant!r}")
    return first, (first[0], first[1] | rest)


def address_ends(said: list[str]) -> tuple[str, str] | None:
    """The first and the last address of a network (or address), or of two addresses; None if they are none."""
    try:
        first, last = network_of(said[0]) if len(said) == 1 and is_network(said[0]) else (address_of(said[0]), address_of(said[-1]))
    except QueryError:
        return None
    return None if first is None or last is None else (address_text(first), address_text(last))
