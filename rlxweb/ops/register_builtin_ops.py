"""Register every op that comes with rlxweb, as a side effect of the import."""

from importlib import import_module

from rlxweb.ops import FAMILIES

for _family in FAMILIES:
    import_module(f"rlxweb.ops.{_family}")
