"""Solver models from TOML files: found by name or path, checked, hashed."""

from kai_solver.modelfiles.cpsat import CP_SAT_OWNED, cp_sat_parameters
from kai_solver.modelfiles.extensions import FAMILY_GROUP, STAGE_GROUP, known_families, known_stages, usual_families
from kai_solver.modelfiles.load import available_models, complete_document, load_model, model_from_document
from kai_solver.modelfiles.write import model_text, write_model

__all__ = [
    "CP_SAT_OWNED",
    "FAMILY_GROUP",
    "STAGE_GROUP",
    "available_models",
    "complete_document",
    "cp_sat_parameters",
    "known_families",
    "known_stages",
    "load_model",
    "model_from_document",
    "model_text",
    "usual_families",
    "write_model",
]
