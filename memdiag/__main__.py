"""``python -m memdiag``: the same as the command ``memdiag``."""

import sys

from memdiag.cli.main import main

sys.exit(main())
