"""Algorithms of domain generalization as objectives; `registry.ALGORITHMS` lists them."""
