"""Environment variables that begin as the controller's do: which are settings, and which are misspelt.

pydantic-settings ignores what it does not know. A misspelt ``KAI_SOLVER_DRY_RUN`` would start a scheduler that acts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kai_solver.errors import InputError, nearest

PREFIX: Final = "KAI_SOLVER_"

OTHERS: Final = frozenset(
    (
        # The command line, the kernels, and records of runs.
        *("DEBUG", "KERNELS", "HOST"),
        # Tests, which start controllers.
        *("CACHE", "CAMPAIGNS", "FUZZ", "IMAGE", "INJECTIONS", "INJECTION_S", "INJECTION_SEED", "SOAK_MINUTES"),
    )
)
"""Variables that others read, after the prefix."""

_NUMBER = r"\d+"
_ADDRESS = r"[0-9a-fA-F.:]+"
_PLACE = r"(tcp|udp|sctp)://\S+:\d+"
_SERVICES = tuple(
    (re.compile(rf"{PREFIX}(\w+_)?{name}"), re.compile(value))
    for name, value in (
        ("SERVICE_HOST", _ADDRESS),
        (r"SERVICE_PORT(_\w+)?", _NUMBER),
        ("PORT", _PLACE),
        (r"PORT_\d+_(TCP|UDP|SCTP)", _PLACE),
        (r"PORT_\d+_(TCP|UDP|SCTP)_PROTO", "tcp|udp|sctp"),
        (r"PORT_\d+_(TCP|UDP|SCTP)_PORT", _NUMBER),
        (r"PORT_\d+_(TCP|UDP|SCTP)_ADDR", _ADDRESS),
    )
)
"""What the kubelet states of each Service of the namespace, as name and value, where ``enableServiceLinks`` is left on.
A Service ``kai-solver-metrics`` makes ``KAI_SOLVER_METRICS_SERVICE_HOST``."""


def variable_of(key: str) -> str:
    """The variable of a key: ``evictions.per_cycle`` is ``KAI_SOLVER_EVICTIONS__PER_CYCLE``."""
    return PREFIX + key.replace(".", "__").upper()


def check_variables(environment: Mapping[str, str], keys: Iterable[str], named: str = "") -> None:
    """Refuse variables that are no key, nor JSON of a group of keys. ``named``: the one that a setting names.

    Raises
    ------
    InputError
        Names the first such variable, and the one that was probably meant.
    """
    alone = {variable_of(key).removeprefix(PREFIX) for key in keys}
    known = alone | {name.rsplit("__", times)[0] for name in alone for times in range(1, name.count("__") + 1)}
    for stated, value in sorted(environment.items()):
        name = stated.upper().removeprefix(PREFIX)
        if not stated.upper().startswith(PREFIX) or name in known or name in OTHERS or stated == named:
            continue
        if _is_of_a_service(stated, value):
            continue
        like = nearest(name, sorted(alone))
        cure = (
            f"Did you mean {PREFIX}{like}?"
            if like
            else "Remove it. `kai-solver controller --show-settings` prints all keys"
        )
        raise InputError("unknown setting", field=stated, cure=cure)


def _is_of_a_service(stated: str, value: str) -> bool:
    return any(name.fullmatch(stated) and form.fullmatch(value) for name, form in _SERVICES)
