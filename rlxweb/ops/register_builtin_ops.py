"""Register every op that comes with rlxweb, as a side effect of the import."""

from importlib import import_module

from rlxweb.ops import OP_MODULES

for _name in OP_MODULES:
    import_module(f"rlxweb.ops.{_name}")
