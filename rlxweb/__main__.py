"""`python -m rlxweb`: the command line."""

from rlxweb.cli.main import main

main()
