"""``python -m notebook_controller_patch`` is the command `bitfusion-notebook-controller`."""

from __future__ import annotations

import sys

from notebook_controller_patch.settings import main

sys.exit(main())
