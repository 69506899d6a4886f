"""A scheduler that only looks on, compared with the one that acts: what is recorded, and the report that follows."""
