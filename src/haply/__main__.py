"""``python -m haply`` is the command ``haply``."""

import sys

from haply.cli import main

sys.exit(main())
