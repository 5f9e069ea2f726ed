"""Slow, obvious float64 twins. Nothing here imports the code that it checks."""
