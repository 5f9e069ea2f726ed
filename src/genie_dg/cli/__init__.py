"""The command line: ``genie-dg <verb>``. One file per verb; nothing imports this package."""
