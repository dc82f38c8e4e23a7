"""Numbers in words, for pictures and messages."""


def plural(n: int, word: str) -> str:
    """"1 message", "2 messages"."""
    return f"{n:,} {word}{'s' * (n != 1)}"


def size_of(nbytes: float) -> str:
    """Bytes, as people say them; 1 KB is 1024 bytes.

    >>> size_of(24), size_of(1536), size_of(3 << 20)
    ('24 B', '1.5 KB', '3 MB')
    """
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= least:
            return f"{nbytes / least:.3g} {unit}" if nbytes / least < 999.5 else f"{nbytes / least:,.0f} {unit}"
    return f"{nbytes:g} B"
