"""Building blocks of the static site; `site/assemble.py` is the entry point."""
