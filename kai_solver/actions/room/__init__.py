"""How room is made for one allocation unit, with one set of units that may be taken.

- `evictor`: places the unit pod by pod, on the node where the cheapest victims leave; then returns or moves those that
  need not go. Start here.
- `table`: by node, what one more pod of a shape costs, kept while the node does not change.
- `survey`: a bound of that cost for all nodes at once; only the cheapest are looked at closely.
- `node`: the exact cost on one node: which victims free so many devices; optional rules add theirs (`Clearing`).
"""
