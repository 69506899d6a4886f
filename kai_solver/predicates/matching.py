"""Single expressions of Kubernetes: does this value match, is this taint tolerated, do these ports clash."""

from collections.abc import Iterable, Mapping

from kai_solver.domain import Requirement, Taint, Toleration


def value_matches(requirement: Requirement, value: str | None) -> bool:
    """Whether a label with ``value`` (None: absent) meets ``requirement``.

    As in ``k8s.io/apimachinery/pkg/labels``: NotIn holds where the label is absent; Gt and Lt compare integers and
    hold nowhere where either side is not one.
    """
    operator, wanted = requirement.operator, requirement.values
    if operator == "DoesNotExist":
        return value is None
    if operator == "NotIn":
        return value is None or value not in wanted
    if value is None:
        return False
    if operator == "Exists":
        return True
    if operator == "In":
        return value in wanted
    return _compares(operator, value, wanted)


def _compares(operator: str, value: str, wanted: tuple[str, ...]) -> bool:
    have, bound = _integer(value), _integer(wanted[0]) if len(wanted) == 1 else None
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def labels_match(selector: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet every requirement; an empty selector matches everything."""
    return all(value_matches(requirement, labels.get(requirement.key)) for requirement in selector)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether some toleration covers ``taint``."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def port_number(port: str) -> str:
    """Number of a host port; only those of one number can clash."""
    return port.partition("/")[0]


def ports_clash(one: str, other: str) -> bool:
    """Whether two host ports exclude each other: ``port/protocol`` on all addresses, or ``port/protocol/address``."""
    number, _, rest = one.partition("/")
    other_number, _, other_rest = other.partition("/")
    protocol, _, address = rest.partition("/")
    other_protocol, _, other_address = other_rest.partition("/")
    if number != other_number or (protocol or "TCP") != (other_protocol or "TCP"):
        return False
    return not address or not other_address or address == other_address
