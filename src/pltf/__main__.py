"""``python -m pltf`` is the command line."""

from pltf.cli import main

main()
