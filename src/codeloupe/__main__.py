"""`python -m codeloupe`."""

import sys

from codeloupe.cli.main import main

sys.exit(main())
