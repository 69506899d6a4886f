"""Integer models of a cycle: variables, one file per constraint family, stages."""
