"""Build the static site: the manual, the demos, and a runtime with our own wheel.

    python site/assemble.py [--out FOLDER] [--cache FOLDER] [--pyodide FOLDER]
                            [--models] [--serve [PORT]]

The result works from any static host at any path, without a network. What comes from
package registries is fetched once into the cache and proved by hash every time.
`./dev site` sets up the environment and calls this.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from assembly.elsewhere import refuse_elsewhere
from assembly.exported import add_export
from assembly.host_files import write_host_files
from assembly.inside import add_policy, refuse_inline
from assembly.models import MODELS, add_models
from assembly.pages import add_folder, build_manual
from assembly.pins import PYODIDE, ROOT
from assembly.progress import say, shown, size
from assembly.publish import refuse_foreign, swap, write_manifest
from assembly.pyodide import Places, find_core
from assembly.runtime import fill_runtime
from assembly.serve import serve
from assembly.wheel import build_wheel

from rlxweb.errors import RlxError

STOPPED = 130


def assemble(root: Path, out: Path, places: Places, models: bool = False) -> None:
    """Build the site of the checkout at `root` into `out`; all of it or nothing."""
    began = time.monotonic()
    refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=".site-new-"))
    try:
        site = scratch / "site"
        site.mkdir()
        facts = fill(root, site, scratch, places)
        wanted = list(MODELS) if models else []
        say(f"models: {', '.join(wanted) or 'none'}")
        add_models(site / "models", wanted)
        refuse_elsewhere(site)
        refuse_inline(site)
        add_policy(site)
        write_host_files(site)
        total = write_manifest(site, facts)
        swap(site, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    took = time.monotonic() - began
    say(f"{shown(out)} is ready: {size(total)} in {took:.1f} s, for any static host")


def fill(root: Path, site: Path, scratch: Path, places: Places) -> dict[str, object]:
    """Runtime, manual and demos, in the temporary folder `site`."""
    wheel = build_wheel(root, scratch)
    say(f"{wheel.name}, {size(wheel.stat().st_size)}")
    core = find_core(places)
    lock = fill_runtime(scratch / "runtime", core, wheel, places)
    say("the manual")
    build_manual(root, site)
    add_folder(root / "site" / "demo", site / "demo")
    add_folder(root / "site" / "examples", site / "examples")  # demos import some
    add_export(site / "demo" / "export" / "plan")
    add_folder(scratch / "runtime", site / "runtime")
    return {
        "pyodide": core.version,
        "python": lock["info"]["python"],
        "packages": {n: p["version"] for n, p in lock["packages"].items()},
    }


def port(text: str) -> int:
    """A port number; 0 is any free one."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="./dev site", description="Build the static site, offline-ready."
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "build" / "site",
        help="where the site goes (build/site)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "build" / "cache",
        help="where downloads are kept (build/cache)",
    )
    parser.add_argument(
        "--pyodide",
        type=Path,
        metavar="FOLDER",
        help="take Pyodide's core from here, and its NumPy wheel if that lies there "
        f"too, instead of fetching {PYODIDE}",
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="put in the trained models of the demos, from their installed packages",
    )
    parser.add_argument(
        "--serve",
        type=port,
        nargs="?",
        const=-1,
        metavar="PORT",
        help="then serve it on 127.0.0.1, on port 8000 or a free one",
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    asked = arguments(words)
    given = asked.pyodide.resolve() if asked.pyodide else None
    places = Places(asked.cache.resolve(), given)
    try:
        assemble(ROOT, asked.out.resolve(), places, asked.models)
        if asked.serve is not None:
            serve(asked.out.resolve(), None if asked.serve < 0 else asked.serve)
    except RlxError as error:  # also one of a file that cannot be written
        print(f"site: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"site: {error.strerror}{where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("site: stopped; the old site is as it was", file=sys.stderr)
        return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
