"""Functions of SQL for texts that are IP addresses, in the order of addresses: all of version 4 before all of version 6.

`ip_in(address, network)`, `ip_between(address, first, last)`, and `ip_order(address)`, a text that sorts as addresses do: the version and
the bits. A network is those that begin with the same bits. They are macros, so that DuckDB evaluates them by itself; statements that ask
them of the key of a table are answered from its index (`sql/prepared.py`, `sql/extra_bounds.py`). A text that is no address is null.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

NAMES = frozenset({"ip_in", "ip_between", "ip_order"})

_OCTET = "CASE WHEN regexp_full_match(o, '[0-9]{1,3}') THEN system.main.lpad(bin(CAST(TRY_CAST(o AS UTINYINT) AS INTEGER)), 8, '0') END"
_GROUP = "CASE WHEN regexp_full_match(g, '[0-9a-fA-F]{1,4}') THEN system.main.lpad(bin(CAST('0x' || g AS INTEGER)), 16, '0')"


_GROUPS = "string_split(h, ':')"


def _let(name: str, value: str, made: str) -> str:
    """`made`, in which `name` is a value: it is worked out once, however often `made` has it. (A macro writes it out each time.)"""
    return f"list_transform([{value}], lambda {name}: {made})[1]"


def _each(name: str, values: str, made: str) -> str:
    return f"array_to_string(list_transform({values}, lambda {name}: {made}), '')"


def _version4(text: str) -> str:
    """The bits of 192.168.0.1; x, which is none, of what is no such address."""
    bits = _each("o", "p", _OCTET)
    return _let("p", f"string_split({text}, '.')", f"CASE WHEN len(p) = 4 THEN {_let('b', bits, _only('b', 32))} ELSE 'x' END")


def _only(bits: str, length: int) -> str:
    return f"CASE WHEN length({bits}) = {length} THEN {bits} ELSE 'x' END"


def _version6(text: str) -> str:
    """The same of 2001:db8::1: an address of version 4 may be its end, and :: stands for the zeros that are missing."""
    group = f"{_GROUP} WHEN contains(g, '.') THEN {_version4('g')} WHEN g = '' AND h = '' THEN '' ELSE 'x' END"
    halves = f"list_transform(string_split({text}, '::'), lambda h: {_each('g', _GROUPS, group)})"
    zeros = "system.main.repeat('0', greatest(0, 128 - length(w[1]) - length(w[2])))"
    return _let("w", halves, f"CASE len(w) WHEN 1 THEN w[1] WHEN 2 THEN w[1] || {zeros} || w[2] END")


def _order(text: str) -> str:
    bits = f"CASE WHEN contains(t, ':') THEN '6' || {_version6('t')} ELSE '4' || {_version4('t')} END"
    return _let("t", f"split_part({text}, '%', 1)", _let("n", bits, "CASE WHEN regexp_full_match(n, '4[01]{32}|6[01]{128}') THEN n END"))


_NETWORK = "is no network: write its first address and the number of its fixed bits, as in 10.0.0.0/8"
_FIXED = "CASE WHEN contains(s, '/') THEN TRY_CAST(split_part(s, '/', 2) AS UTINYINT) ELSE length(f) - 1 END"
_BEGINS = (
    f"CASE WHEN s IS NULL THEN NULL WHEN f IS NULL OR k IS NULL OR k > length(f) - 1 THEN error(s || ' {_NETWORK}') "
    f"WHEN contains(substr(f, k + 2), '1') THEN error(s || ' is an address within a network, and not its first') ELSE left(f, k + 1) END"
)
_ADDRESS = "CASE WHEN {0} IS NULL THEN NULL ELSE coalesce(ip_order({0}), error({0} || ' is no IPv4 or IPv6 address')) END"
_MACROS = (
    f"ip_order(a) AS {_order('a')}",
    "ip_in(a, network) AS starts_with(ip_order(a), "
    + _let("s", "network", _let("f", "ip_order(split_part(s, '/', 1))", _let("k", _FIXED, _BEGINS)))
    + ")",
    f"ip_between(a, lo, hi) AS ip_order(a) BETWEEN {_let('x', 'lo', _ADDRESS.format('x'))} AND {_let('y', 'hi', _ADDRESS.format('y'))}",
)


_NEEDED = re.compile(r"(?i)\bip_(?:in|between|order)\b")


def are_needed(text: str) -> bool:
    """Whether a statement may call them. Few do, and to make them takes as long as many a statement."""
    return _NEEDED.search(text) is not None


def install(connection: Connection, temporary: bool = False) -> None:
    """Put the macros into a database; temporary ones, if only this connection is to have them."""
    for macro in _MACROS:
        connection.execute(f"CREATE {'TEMP ' if temporary else ''}MACRO {macro}")
