"""From parts to runs: the one room where data, models, algorithms and optimizers meet."""
