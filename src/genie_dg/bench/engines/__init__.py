"""Where the runs of a sweep happen: on this machine, or on a Ray cluster."""
