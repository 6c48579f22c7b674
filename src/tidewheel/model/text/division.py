"""The division of texts into codes: a small tree of what many keys share, its description in bytes and its table for kernels.

A node stands for all keys that begin with the same bytes. The word of eight bytes that follows is the code, as long as that tells keys
apart. Where it does not, words are of six bytes, and a word that too many different keys share is *divided*: it has a node of its own, for
the bytes that follow. In the order of keys, the pieces between divided words are numbered, and a code is the number of its piece, then the
word. A key that leaves a node's shared bytes is below or above all others of the node: the two ends are pieces as well.

A description of 255 bytes or less is the shared bytes of a single node (all that there was in the first formats). A longer one is
VERSION, then each node followed by the nodes of its divided words: count and bytes of what it shares beyond its word, count of divided
words and six bytes of each; counts as LEB128. Zeros fill it up to 256 bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import CorruptionError
from tidewheel.model.dataclass import dataclass

LONGEST_PREFIX = 255
VERSION = 1
WORD = 6
"""Bytes of a word where words are divided; eight where they are not."""
MOST_NODES = 4096
MOST_DEPTH = 256

HEAD, FIELDS = 3, 6
"""Numbers at the beginning of a table, and numbers of each node."""

PATH_FIELDS = 8
"""Numbers of each node in `paths`: a line of the cache."""
MOST_PATH_BYTES = 1 << 22

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Node:
    """`shared` are the bytes after the word that led here (after nothing, for the first); `words` rise, one child each."""

    shared: bytes
    words: tuple[bytes, ...] = ()
    children: tuple[Node, ...] = ()

    @property
    def is_plain(self) -> bool:
        return not self.words

    @property
    def pieces(self) -> int:
        """Below, above, between the words, and those of the children."""
        return 3 + len(self.words) + sum(child.pieces for child in self.children)


def described(node: Node) -> bytes:
    if node.is_plain and len(node.shared) <= LONGEST_PREFIX:
        return node.shared
    out = bytearray([VERSION])
    _describe(node, out)
    return bytes(out.ljust(LONGEST_PREFIX + 1, b"\0"))


def _describe(node: Node, out: bytearray) -> None:
    out += _leb(len(node.shared)) + node.shared + _leb(len(node.words)) + b"".join(node.words)
    for child in node.children:
        _describe(child, out)


def _leb(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def parsed(description: bytes) -> Node:
    """The division that is described. Raises CorruptionError if none is."""
    if len(description) <= LONGEST_PREFIX:
        return Node(description)
    if description[0] != VERSION:
        raise CorruptionError(f"key codes are described by version {description[0]}, this Tidewheel knows {VERSION}: use a newer one")
    try:
        node, at = _parse(description, 1, 0)
        if description[at:].strip(b"\0"):
            raise ValueError("there is more than a tree")
    except (ValueError, IndexError) as e:
        raise CorruptionError(f"the description of key codes cannot be read ({e}); restore the catalog or the file from a backup") from None
    return node


def _parse(data: bytes, at: int, depth: int) -> tuple[Node, int]:
    size, at = _number(data, at)
    shared, at = _bytes(data, at, size)
    count, at = _number(data, at)
    joined, at = _bytes(data, at, WORD * count)
    words = tuple(joined[i : i + WORD] for i in range(0, len(joined), WORD))
    if depth > MOST_DEPTH or any(a >= b for a, b in pairwise(words)):
        raise ValueError("its words are not in order")
    children = []
    for _ in words:
        child, at = _parse(data, at, depth + 1)
        children.append(child)
    return Node(shared, words, tuple(children)), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, at, shift = number | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return number, at


def _bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise ValueError("it ends too early")
    return data[at : at + size], at + size


def compiled(root: Node) -> Table:
    """The table of a division for kernels (their module says how it is laid out)."""
    nodes: list[Node] = []
    _collect(root, nodes)
    number = {id(node): i for i, node in enumerate(nodes)}
    n, w = len(nodes), sum(len(node.words) for node in nodes)
    fields = np.zeros((FIELDS, n), np.int64)
    words, child = np.zeros(w, np.int64), np.zeros(w, np.int64)
    gaps = np.zeros(w + n, np.int64)
    starts = np.zeros(n + 1, np.int64)
    np.cumsum([len(node.words) for node in nodes], out=starts[1:])
    _number_pieces(root, number, starts, fields, gaps, 0)
    shared = b""
    begin = 8 * (HEAD + FIELDS * n + 2 * w + (w + n))
    for i, node in enumerate(nodes):
        fields[0, i], fields[1, i] = begin + len(shared), len(node.shared)
        fields[2, i], fields[3, i] = starts[i], len(node.words)
        for j, (word, below) in enumerate(zip(node.words, node.children, strict=True)):
            words[starts[i] + j], child[starts[i] + j] = int.from_bytes(word, "big"), number[id(below)]
        shared += node.shared
    shared += b"\0" * (16 - len(shared) % 8)  # kernels read eight bytes at a time
    head = np.array([n, w, int(root.is_plain)], np.int64)
    return np.concatenate([head, fields.ravel(), words, child, gaps, np.frombuffer(shared, np.int64)])


def paths(root: Node) -> Table | None:
    """The same division laid out for kernels that encode many keys; None if it would be too large.

    Of each node it has all bytes that lead to its words, so that a key can be compared once, at the end of its way, and words in blocks of
    eight, filled up with numbers that no word reaches. Behind a block of words are that of their children and that of the pieces.
    """
    nodes: list[Node] = []
    _collect(root, nodes)
    number = {id(node): i for i, node in enumerate(nodes)}
    starts = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum([len(node.words) for node in nodes], out=starts[1:])
    fields = np.zeros((FIELDS, len(nodes)), np.int64)
    gaps = np.zeros(int(starts[-1]) + len(nodes), np.int64)
    _number_pieces(root, number, starts, fields, gaps, 0)
    rooms = [-(-(len(node.words) + 8) // 8) * 8 if node.words else 0 for node in nodes]
    firsts = PATH_FIELDS * len(nodes) + np.concatenate([[0], np.cumsum(3 * np.array(rooms, np.int64))])
    table = np.full(int(firsts[-1]), np.iinfo(np.int64).max, np.int64)
    ways: list[bytes] = [root.shared] * len(nodes)
    size, begin = 0, 8 * len(table)
    for i, node in enumerate(nodes):
        way, words, first, room = ways[i], len(node.words), int(firsts[i]), rooms[i]
        pieces = gaps[starts[i] + i : starts[i] + i + words + 1]
        table[PATH_FIELDS * i : PATH_FIELDS * (i + 1)] = (len(way), begin + size, words, 8 * first, room, pieces[0], 0, 0)
        size += len(way)
        if size > MOST_PATH_BYTES:
            return None
        for j, (word, child) in enumerate(zip(node.words, node.children, strict=True)):
            below = number[id(child)]
            ways[below] = way + word + child.shared
            table[first + j], table[first + room + j] = int.from_bytes(word, "big"), 8 * PATH_FIELDS * below
        if words:
            table[first + 2 * room : first + 2 * room + words + 1] = pieces
    data = b"".join(ways).ljust(-(-(size + 8) // 8) * 8, b"\0")  # kernels read eight bytes at a time
    return np.concatenate([table, np.frombuffer(data, np.int64)])


def _collect(node: Node, out: list[Node]) -> None:
    out.append(node)
    for child in node.children:
        _collect(child, out)


def _number_pieces(node: Node, number: dict[int, int], starts: Any, fields: Any, gaps: Any, next_: int) -> int:
    """Number the pieces of a node and all below it, in the order of keys. Returns the number after the last."""
    i = number[id(node)]
    fields[4, i], next_ = next_, next_ + 1
    for j, child in enumerate(node.children):
        gaps[starts[i] + i + j], next_ = next_, next_ + 1
        next_ = _number_pieces(child, number, starts, fields, gaps, next_)
    gaps[starts[i] + i + len(node.words)], next_ = next_, next_ + 1
    fields[5, i] = next_
    return next_ + 1


def keys_of(root: Node, code: int) -> tuple[bytes, bytes | None]:
    """(a, b): every key with this code is at least a, and at most the greatest that begins with b; None: there is no such limit."""
    bits = code + (1 << 63)
    if root.is_plain:
        least = root.shared + bits.to_bytes(8, "big")
        return b"" if bits == 0 else least.rstrip(b"\0"), None if bits == (1 << 64) - 1 else least
    if bits == (1 << 64) - 1:
        return root.shared, None
    ordinal, word = bits >> 48, (bits & (1 << 48) - 1).to_bytes(WORD, "big")
    node, before, begin = root, b"", 0
    while True:
        here = before + node.shared
        if ordinal == begin:
            return before.rstrip(b"\0"), here
        if ordinal == begin + node.pieces - 1:
            return here, before
        at = begin + 1
        for j, child in enumerate(node.children):
            if at < ordinal < at + 1 + child.pieces:
                node, before, begin = child, here + node.words[j], at + 1
                break
            at += 1 + child.pieces
            if ordinal < at:
                return (here + word).rstrip(b"\0"), here + word
        else:
            return (here + word).rstrip(b"\0"), here + word


def as_bytes(array: pa.Array) -> pa.Array:
    """Texts or bytes of any type as bytes of one type."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.binary())
    return array.cast(pa.large_binary())


def byte_addresses(array: pa.Array) -> tuple[int, int, int, pa.Array]:
    """(address of the offsets, wide flag, address of the bytes, what to keep alive) for kernels."""
    t = array.type
    if pa.types.is_fixed_size_binary(t):
        return 0, -t.byte_width, array.buffers()[1].address + array.offset * t.byte_width, array
    if pa.types.is_string_view(t) or pa.types.is_binary_view(t):
        array = array.cast(pa.binary())
    wide = int(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
    _, offsets, data = array.buffers()
    return offsets.address + array.offset * (8 if wide else 4), wide, data.address if data is not None else 0, array
