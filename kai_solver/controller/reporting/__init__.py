"""Reporters: what happened and why gangs wait, in logs, metrics, and statuses, conditions and events of objects."""
