"""Two or more traces beside each other: what grew, what differs, and why."""
