"""Asking CP-SAT: the child process, its parameters, sessions of stages."""
