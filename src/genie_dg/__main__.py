"""``python -m genie_dg`` is ``genie-dg``."""

from __future__ import annotations

import sys

from genie_dg.cli.main import main

sys.exit(main())
