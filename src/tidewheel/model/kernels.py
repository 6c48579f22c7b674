"""Kernels that make codes. Arrays and addresses in, arrays out; they release the GIL and are compiled once.

Arrow memory comes in as int64 addresses (`view` looks at it): one compiled version then serves every buffer, read-only
or not, and one call can walk many pieces. Whoever passes an address keeps its buffer alive during the call.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from tidewheel.model.jit.kernels import kernel


@intrinsic
def view(typing_context, address, n, dtype):
    """n items of dtype at an address. Nobody owns them: kernels without references to count are made of this."""
    array = types.Array(dtype.dtype, 1, "C")

    def generate(context, builder, signature, args):
        from numba.np.arrayobj import populate_array  # a part of the compiler, which a process that only runs kernels does not load

        made = context.make_array(array)(context, builder)
        size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(dtype.dtype)))
        items = builder.inttoptr(args[0], made.data.type)
        populate_array(made, items, [args[1]], [size], size, meminfo=None)
        return made._getvalue()

    return array(types.int64, types.int64, dtype), generate


@intrinsic
def eight_bytes(typing_context, address, offset):
    """The eight bytes so far behind an address, wherever it is, in the machine's order."""

    def generate(context, builder, signature, args):
        byte, eight = context.get_value_type(types.uint8), context.get_value_type(types.uint64)
        at = builder.gep(builder.inttoptr(args[0], byte.as_pointer()), [args[1]])
        return builder.load(builder.bitcast(at, eight.as_pointer()), align=1)

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def copy_memory(typing_context, to, given, n):
    """n bytes from one address to another. They do not overlap."""

    def generate(context, builder, signature, args):
        byte = context.get_value_type(types.uint8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


if nb.config.DISABLE_JIT:  # the kernels as plain Python, for a test and for a debugger

    class _Memory:
        def __init__(self, address, n, dtype):
            most = (1 << 40) // np.dtype(dtype).itemsize  # kernels ask for "no end" by the greatest int64
            shape = (min(max(int(n), 0), most) if address else 0,)
            self.__array_interface__ = {"version": 3, "data": (int(address), False), "shape": shape, "typestr": np.dtype(dtype).str}

    def view(address, n, dtype):
        return np.asarray(_Memory(address, n, dtype))

    def copy_memory(to, given, n):
        view(to, n, np.uint8)[:] = view(given, n, np.uint8)

    def eight_bytes(address, offset):
        return np.uint64(int.from_bytes(view(address + offset, 8, np.uint8).tobytes(), "little"))


@nb.njit(inline="always")
def unsigned(address, width, i):
    """Item i of unsigned numbers of 1, 2, 4 or 8 bytes each."""
    if width == 1:
        return np.int64(view(address, i + 1, np.uint8)[i])
    if width == 2:
        return np.int64(view(address, i + 1, np.uint16)[i])
    if width == 4:
        return np.int64(view(address, i + 1, np.uint32)[i])
    return np.int64(view(address, i + 1, np.uint64)[i])


@nb.njit(inline="always")
def _spread(x):
    """31 bits, a zero between each two."""
    x = (x | (x << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    x = (x | (x << np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = (x | (x << np.uint64(2))) & np.uint64(0x3333333333333333)
    return (x | (x << np.uint64(1))) & np.uint64(0x5555555555555555)


@kernel("int64(float64, float64, float64, int64)")
def quantise(x, lo, scale, bits):
    """The cell of a coordinate, clamped to the bounds; rises with x."""
    top = (np.int64(1) << bits) - 1
    y = (x - lo) * scale
    if not y > 0.0:
        return np.int64(0)
    if y >= top:
        return np.int64(top)
    return np.int64(y)


@kernel("void(float64[:, ::1], float64[::1], float64[::1], int64, int64[::1])")
def zorder_codes(points, lo, scale, bits, out):
    """Interleave the cells of `points` (one row per dimension), the first dimension lowest."""
    dims, n = points.shape
    if dims == 2:
        for i in range(n):
            x = np.uint64(quantise(points[0, i], lo[0], scale[0], bits))
            y = np.uint64(quantise(points[1, i], lo[1], scale[1], bits))
            out[i] = np.int64(_spread(x) | (_spread(y) << np.uint64(1)))
        return
    for i in range(n):
        code = np.int64(0)
        for d in range(dims):
            cell = quantise(points[d, i], lo[d], scale[d], bits)
            for b in range(bits):
                code |= ((cell >> b) & 1) << (b * dims + d)
        out[i] = code


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], int64[::1])", makes_arrays=True)
def zorder_intervals(cell_lo, cell_hi, bits, out_lo, out_hi):
    """Cover a box of cells by at most len(out_lo) code intervals: a superset, in rising order. Returns how many.

    Level by level, cells that the box cuts are divided while there is room; what is still cut then is taken whole.
    """
    dims = cell_lo.shape[0]
    limit = out_lo.shape[0]
    children = 1 << dims
    room = limit * 4 + children
    corner = np.zeros((room, dims), np.int64)
    code = np.zeros(room, np.int64)
    shift = np.zeros(room, np.int64)
    cut = np.zeros(room, np.uint8)
    n = 1
    shift[0] = bits
    cut[0] = 1
    corner2 = np.zeros_like(corner)
    code2 = np.zeros_like(code)
    shift2 = np.zeros_like(shift)
    cut2 = np.zeros_like(cut)
    while True:
        pending = 0
        for i in range(n):
            pending += cut[i] and shift[i] > 0
        if pending == 0 or n + pending * (children - 1) > limit * 2:
            break
        m = 0
        for i in range(n):
            if not cut[i] or shift[i] == 0:
                corner2[m] = corner[i]
                code2[m] = code[i]
                shift2[m] = shift[i]
                cut2[m] = cut[i]
                m += 1
                continue
            half = shift[i] - 1
            for c in range(children):
                outside = False
                inside = True
                for d in range(dims):
                    a = corner[i, d] + (((c >> d) & 1) << half)
                    b = a + (np.int64(1) << half) - 1
                    if b < cell_lo[d] or a > cell_hi[d]:
                        outside = True
                        break
                    if a < cell_lo[d] or b > cell_hi[d]:
                        inside = False
                if outside:
                    continue
                for d in range(dims):
                    corner2[m, d] = corner[i, d] + (((c >> d) & 1) << half)
                code2[m] = code[i] + (np.int64(c) << (half * dims))
                shift2[m] = half
                cut2[m] = 0 if inside else 1
                m += 1
        corner, corner2 = corner2, corner
        code, code2 = code2, code
        shift, shift2 = shift2, shift
        cut, cut2 = cut2, cut
        n = m
    # adjoining cells become one interval, then the narrowest gaps are closed until all fit
    lo = np.empty(n, np.int64)
    hi = np.empty(n, np.int64)
    m = 0
    for i in range(n):
        last = code[i] + (np.int64(1) << (shift[i] * dims)) - 1
        if m and hi[m - 1] + 1 == code[i]:
            hi[m - 1] = last
        else:
            lo[m] = code[i]
            hi[m] = last
            m += 1
    while m > limit:
        best = 1
        for i in range(2, m):
            if lo[i] - hi[i - 1] < lo[best] - hi[best - 1]:
                best = i
        hi[best - 1] = hi[best]
        for i in range(best, m - 1):
            lo[i] = lo[i + 1]
            hi[i] = hi[i + 1]
        m -= 1
    for i in range(m):
        out_lo[i] = lo[i]
        out_hi[i] = hi[i]
    return m


@kernel("void(int64, int64, int64, int64, int64[::1])")
def ipv4_codes(offsets, wide, data, n, out):
    """Dotted IPv4 texts as numbers; -1 where the text is anything else."""
    narrow = view(offsets, n + 1, np.int32)
    broad = view(offsets, n + 1, np.int64)
    for i in range(n):
        a = broad[i] if wide else np.int64(narrow[i])
        b = broad[i + 1] if wide else np.int64(narrow[i + 1])
        text = view(data + a, b - a, np.uint8)
        value = np.int64(0)
        part = np.int64(0)
        digits = 0
        dots = 0
        good = b - a >= 7 and b - a <= 15
        for j in range(b - a):
            c = np.int64(text[j])
            if c == 46:
                good = good and digits > 0 and dots < 3
                value = value * 256 + part
                part = 0
                digits = 0
                dots += 1
            else:
                good = good and c >= 48 and c <= 57 and not (digits > 0 and part == 0)
                part = part * 10 + c - 48
                digits += 1
                good = good and part < 256
            if not good:
                break
        out[i] = value * 256 + part if good and dots == 3 and digits > 0 else np.int64(-1)


@kernel("int64(int64, int64[::1], int64[::1], int64[::1])", nogil=False)
def column_slots(array, kinds, widths, out):
    """Column slots of a descriptor (model/pieces.py) from a record batch's Arrow C data structure at this address.

    Of the structure we read length, null_count, offset, n_buffers, n_children, buffers, children: eight bytes each. Returns the first
    column that starts before its buffers, or -1.
    """
    children = view(view(array, 7, np.int64)[6], kinds.shape[0], np.int64)
    for c in range(kinds.shape[0]):
        at = 4 * c
        for i in range(4):
            out[at + i] = 0
        if kinds[c] == 4:
            continue
        child = view(children[c], 7, np.int64)
        offset = child[2]
        if offset < 0:
            return c
        buffers = view(child[5], 3, np.int64)
        out[at] = buffers[0] if child[1] != 0 else 0
        out[at + 1] = offset
        out[at + 2] = buffers[1] + offset * widths[c]
        if kinds[c] > 1:
            out[at + 3] = buffers[2]
    return -1
