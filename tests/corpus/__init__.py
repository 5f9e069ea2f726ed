"""Runs in every state, and what the command line said about them before it was rebuilt.

``runs.tar.gz`` holds folders of runs, whole and damaged, and trees in DomainBed's format. ``expected`` holds
the exit codes and the output of commands that read them. `tests.test_corpus` asks the same again; deliberate
differences are listed in `corrections`. `training` prints digests of runs, by which one sees whether training
itself has changed. The runs were made once, with the code before the rebuild (commit 26aa359).
"""
