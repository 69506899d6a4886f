"""The working state of a cycle: what is free, which pods run or will run where, which may leave, what was decided."""
