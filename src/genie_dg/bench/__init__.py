"""From parts to runs: the one package where data, models, algorithms and optimizers meet."""
