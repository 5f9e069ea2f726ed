"""The run folder: its file names, its typed contents, and how both are written and read."""
