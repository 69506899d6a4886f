"""Ejection chains: pending gangs come in, and evicted work comes back, by moves, swaps and cheaper evictions.

The search is a pure function over flat arrays (`arrays`), compiled where kernels are loaded (`kai_solver.compiled`).
"""
