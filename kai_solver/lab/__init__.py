"""The laboratory: benchmarks, simulations, experiments, conformance. The engine does not know it."""
