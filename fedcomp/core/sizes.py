"""Numbers of bytes as people read them."""


def format_bytes(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit, such as 12.3 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.{0 if unit == 'B' or count >= 99.95 else 1}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
