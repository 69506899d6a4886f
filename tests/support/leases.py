"""What a Lease says, whoever looks."""

from kai_solver.cluster.api import Api
from kai_solver.cluster.resources import LEASES


def holder_of(api: Api, namespace: str, name: str) -> str:
    """Who holds it by its own words, whether still live or not; empty where nobody does."""
    return str(api.get(LEASES, namespace, name)["spec"].get("holderIdentity") or "")
