"""Numbers as people read them: counts, sizes, durations, ages. One way each, for reports and for screens."""

from __future__ import annotations


def counted(n: int, word: str, words: str = "") -> str:
    """'1 chunk', '1,200 chunks'; `words` where the plural is no 's'."""
    return f"{n:,} {word if n == 1 else words or word + 's'}"


def amount(n: float) -> str:
    """Exact up to a million, then three digits."""
    if n < 1e6:
        return f"{n:,.0f}"
    for unit, least in (("G", 1e9), ("M", 1e6)):
        if n >= least:
            return f"{n / least:.3g} {unit}" if n / least < 999.5 else f"{n / least:,.0f} {unit}"
    return f"{n:,.0f}"


def rate(n: float | None) -> str:
    """How many in a second; a dash where nobody knows."""
    return "–" if n is None else amount(n) if n >= 10 or n == int(n) else f"{n:.1f}"


def size(n: float) -> str:
    """Bytes, in powers of a thousand."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


def duration(seconds: float) -> str:
    """How long something took, to about three digits. Less than nothing, by clocks that differ, is nothing."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if 0 < seconds < 0.1 else f"{max(seconds, 0) * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds) // 60} min {seconds % 60:.0f} s"


def age(seconds: float | None) -> str:
    """How long ago, in one unit; a time that is still to come has a plus."""
    if seconds is None:
        return "–"
    mark, n = ("+" if seconds < -0.5 else ""), abs(seconds)
    for unit, length in (("y", 365.25 * 86_400), ("d", 86_400), ("h", 3600), ("min", 60)):
        if n >= 2 * length:
            return f"{mark}{n / length:.0f} {unit}"
    return f"{mark}{n:.1f} s"
