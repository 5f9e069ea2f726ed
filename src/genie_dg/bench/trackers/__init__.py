"""Trackers: programs that collect the curves of many runs."""
