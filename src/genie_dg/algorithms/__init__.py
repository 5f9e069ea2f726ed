"""Algorithms of domain generalization as objectives; `table.ALGORITHMS` lists them."""
