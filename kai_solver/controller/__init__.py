"""The loop in a cluster: see, decide, act, report."""
