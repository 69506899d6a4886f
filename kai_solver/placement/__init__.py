"""Why this node: how many pods fit where, and which domain, node and devices an allocation unit takes."""
