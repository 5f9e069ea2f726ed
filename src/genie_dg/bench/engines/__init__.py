"""Where the runs of a sweep happen: on this machine, on a Ray cluster, or on Slurm."""
