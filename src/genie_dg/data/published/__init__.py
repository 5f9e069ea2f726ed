"""Data sets of others: what is published about them, where they come from, and how they reach the disk."""
