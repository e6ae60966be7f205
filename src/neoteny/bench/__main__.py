"""``python -m neoteny.bench``: the same as ``neoteny bench``."""

import sys

from neoteny.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
