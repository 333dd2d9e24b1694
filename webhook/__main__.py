"""`python -m webhook` is `slicewarden`."""

import sys

from webhook.cli import main

sys.exit(main())
