"""How much an input may hold before it is refused."""

from dataclasses import dataclass

_GIB = 2**30
_VALUES_PER_OBJECT = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one input; the defaults take any real cluster and no bomb.

    Attributes
    ----------
    max_bytes
        Unpacked bytes of all members together.
    max_objects
        YAML mappings, aliases expanded; objects of the native format, counts multiplied out.
    max_json_objects
        JSON objects: more, since each is written out. 5,000 nodes and 44,000 pods of a KAI snapshot are 2.8 million.
    max_depth
        Nesting of objects and arrays.
    """

    max_bytes: int = _GIB
    max_objects: int = 1_000_000
    max_depth: int = 64
    max_json_objects: int = 5_000_000

    @property
    def max_values(self) -> int:
        """Values of any kind, aliases expanded: what an alias bomb of plain lists runs into."""
        return self.max_objects * _VALUES_PER_OBJECT


DEFAULT_LIMITS = Limits()
