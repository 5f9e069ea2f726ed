"""The paper, one command for each of its tables and figures; `table.PAPER` lists them."""
