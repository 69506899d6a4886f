"""Secrets that the controller makes, marked as its own, so that it never takes or changes a user's."""

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import SECRETS
from kai_solver.errors import InputError

OURS = {"app.kubernetes.io/managed-by": "kai-solver"}
"""Labels of such a Secret."""


def own_secret(api: Api, namespace: str, name: str, *, setting: str, cure: str) -> Object:
    """The Secret; empty where there is none yet.

    Parameters
    ----------
    setting, cure
        What names the Secret, and what to do if it belongs to a user.

    Raises
    ------
    ApiError
        It cannot be read.
    InputError
        It lacks our label.
    """
    try:
        found = api.get(SECRETS, namespace, name)
    except ApiError as error:
        if error.is_missing:
            return {}
        raise
    labels = meta(found).get("labels")
    if not isinstance(labels, dict) or not OURS.items() <= labels.items():
        problem = f"Secret {namespace}/{name} is not ours: it lacks the label {next(iter(OURS))}"
        raise InputError(problem, field=setting, cure=cure)
    return found
