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

from assembly.demo_models import MODEL_WRITERS, add_models
from assembly.export_demo_plan import add_export
from assembly.external_url_check import refuse_external_urls
from assembly.manual_build import build_manual, copy_folder
from assembly.output_folder_swap import refuse_foreign, swap_folders, write_manifest
from assembly.page_content_policy import add_policy, refuse_inline
from assembly.progress import display_path, format_size, print_progress
from assembly.pyodide_downloads import FileSources, find_core
from assembly.pyodide_version_pin import PYODIDE_VERSION, ROOT
from assembly.runtime_folder import fill_runtime
from assembly.serve import serve
from assembly.static_host_config import write_host_files
from assembly.wheel import build_wheel

from rlxweb.errors import RlxError

INTERRUPTED_EXIT_CODE = 130


def assemble(root: Path, out: Path, sources: FileSources, models: bool = False) -> None:
    """Build the site of the checkout at `root` into `out`, atomically."""
    start = time.monotonic()
    refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=".site-new-"))
    try:
        site = scratch / "site"
        site.mkdir()
        facts = fill_site(root, site, scratch, sources)
        model_names = list(MODEL_WRITERS) if models else []
        print_progress(f"models: {', '.join(model_names) or 'none'}")
        add_models(site / "models", model_names)
        refuse_external_urls(site)
        refuse_inline(site)
        add_policy(site)
        write_host_files(site)
        total = write_manifest(site, facts)
        swap_folders(site, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    elapsed_s = time.monotonic() - start
    print_progress(
        f"{display_path(out)} is ready: {format_size(total)} in {elapsed_s:.1f} s, "
        f"for any static host"
    )


def fill_site(
    root: Path, site: Path, scratch: Path, sources: FileSources
) -> dict[str, object]:
    """Write runtime, manual and demos into the temporary folder `site`; return the
    facts for its manifest.
    """
    wheel = build_wheel(root, scratch)
    print_progress(f"{wheel.name}, {format_size(wheel.stat().st_size)}")
    core = find_core(sources)
    lock = fill_runtime(scratch / "runtime", core, wheel, sources)
    print_progress("the manual")
    build_manual(root, site)
    copy_folder(root / "site" / "demo", site / "demo")
    copy_folder(root / "site" / "examples", site / "examples")  # demos import some
    add_export(site / "demo" / "export" / "plan")
    copy_folder(scratch / "runtime", site / "runtime")
    return {
        "pyodide": core.version,
        "python": lock["info"]["python"],
        "packages": {
            name: package["version"] for name, package in lock["packages"].items()
        },
    }


def parse_port(text: str) -> int:
    """Parse a port number; 0 is any free one."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="./dev site", description="Build the static site, which works offline."
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "build" / "site",
        help="output folder (default: build/site)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "build" / "cache",
        help="cache folder for downloads (default: build/cache)",
    )
    parser.add_argument(
        "--pyodide",
        type=Path,
        metavar="FOLDER",
        help="read Pyodide, and its NumPy wheel if present, from this folder "
        f"instead of downloading {PYODIDE_VERSION}",
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="add the trained models of the demos from their installed packages",
    )
    parser.add_argument(
        "--serve",
        type=parse_port,
        nargs="?",
        const=-1,
        metavar="PORT",
        help="then serve the site on 127.0.0.1; default: port 8000, or a free port",
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = parse_arguments(words)
    pyodide_folder = options.pyodide.resolve() if options.pyodide else None
    sources = FileSources(options.cache.resolve(), pyodide_folder)
    try:
        assemble(ROOT, options.out.resolve(), sources, options.models)
        if options.serve is not None:
            serve(options.out.resolve(), None if options.serve < 0 else options.serve)
    except RlxError as error:  # also one of a file that cannot be written
        print(f"site: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"site: {error.strerror}{where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("site: interrupted; the old site is unchanged", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
