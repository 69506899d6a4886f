"""Solver models from TOML files: found by name or path, checked, hashed."""

from kai_solver.modelfiles.extensions import FAMILY_GROUP, STAGE_GROUP, known_families, known_stages, usual_families
from kai_solver.modelfiles.load import available_models, load_model, model_from_document

__all__ = [
    "FAMILY_GROUP",
    "STAGE_GROUP",
    "available_models",
    "known_families",
    "known_stages",
    "load_model",
    "model_from_document",
    "usual_families",
]
