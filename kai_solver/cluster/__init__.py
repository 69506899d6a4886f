"""The cluster that is scheduled: its API server, what is known of it, and what is done to it."""
