"""How the static site is put together; `site/assemble.py` is the way in."""
