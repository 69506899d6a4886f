"""Numbers in texts for people."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 pod``, ``2 pods``, ``4,000 pods``."""
    return f"{count:,} {form(count, noun, plural)}"


def form(count: float, noun: str, plural: str = "") -> str:
    """``noun`` as it stands after that number: as it is after 1, else its ``plural`` (empty: with an s)."""
    return noun if count == 1 else plural or f"{noun}s"
