"""A package of somebody else's that adds one part of each kind to kai-solver, through entry points alone."""

from lab_rules.benches import BenchImporter
from lab_rules.campaigns import CampaignGrouper
from lab_rules.quiet_nodes import keep_quiet, quiet_nodes_used
from lab_rules.sealed_nodes import CHECK, RULE

__all__ = ["CHECK", "RULE", "BenchImporter", "CampaignGrouper", "keep_quiet", "quiet_nodes_used"]
