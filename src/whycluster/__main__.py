"""``python -m whycluster`` is the command ``whycluster``."""

import sys

from whycluster.cli import main

sys.exit(main())
