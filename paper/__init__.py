"""The paper, one command for each of its tables and figures; `registry.PAPER` lists them."""
