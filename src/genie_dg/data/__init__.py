"""Data sets as lists of domains."""
