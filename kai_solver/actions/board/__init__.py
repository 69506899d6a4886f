"""Turns of plain gangs on large clusters: the actions' decisions over flat arrays, compiled.

A *plain* gang asks for nothing but room: pods of one shape with whole GPUs, a share of one, or none, all at once, at
most within one domain of one level. Nearly all gangs of large clusters are plain. Their turns are taken here, by
kernels, up to the next gang that is not plain. That one has its turn in `allocate` and `disrupt`, as on small clusters,
and the arrays catch up.

- `arrays`: what the kernels work on. Start here.
- `order`: which gang is next.
- `room`: places on what is free, and domains.
- `rights`: limits, quotas, and what reclaim may take.
- `victims`: the cheapest victims by node, and room that is made by them.
- `turns`: a turn from beginning to end, and the loop over turns.
- `describe`: the arrays of a working state, and how they catch up with it.
- `serving`: what the kernels decided, put into effect on the working state.
"""
