"""``python -m neoteny``: the same as ``neoteny``."""

import sys

from neoteny.cli import main

if __name__ == "__main__":
    sys.exit(main())
