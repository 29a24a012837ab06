"""The headers of the site, in the words of the usual static hosts.

One file each, in the folder that is uploaded. A host reads its own and serves the
others, which tell nothing that the headers do not. GitHub Pages sends none but its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from assembly.policy import (
    ALWAYS,
    DEMO,
    DEMO_FOLDER,
    LIVE,
    LIVE_FOLDER,
    MANUAL,
    POLICY,
    directives,
    headers,
    kind_of,
    widest,
    written,
)

MADE = "Made by ./dev site"


def write_host_files(site: Path) -> None:
    """Write every host's file into the finished site."""
    for name, made in FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made(site), "utf-8")


def netlify(site: Path) -> str:
    """`_headers` of Netlify and Cloudflare Pages.

    There every rule that fits a path adds its headers, and two policies both hold. So
    the first rule allows what any page may, and each further one has its own whole
    policy: together they allow what the narrower one does.
    """
    lines = [f"# {MADE}"]
    lines += _rule("/*", {POLICY: written(widest()), **ALWAYS})
    for pattern, kind in _patterns(site):
        lines += _rule(pattern, {POLICY: written(directives(kind))})
    return "\n".join(lines) + "\n"


def _rule(pattern: str, said: Mapping[str, str]) -> list[str]:
    return [pattern, *(f"  {name}: {value}" for name, value in said.items())]


def _patterns(site: Path) -> Iterator[tuple[str, str]]:
    """(pattern, kind) of all files but the live demo's, none of which fits two."""
    yield "/", MANUAL
    for folder in (site, site / DEMO_FOLDER):
        for path in sorted(folder.iterdir()):
            name = path.relative_to(site).as_posix()
            inner = f"{name}/" if path.is_dir() else name
            if LIVE_FOLDER.startswith(inner) or path.name.startswith(("_", ".")):
                continue
            yield f"/{inner}*" if path.is_dir() else f"/{inner}", kind_of(inner)


def apache(kind: str) -> Callable[[Path], str]:
    """A folder's `.htaccess`; a folder in it has its own, which goes before this."""

    def made(site: Path) -> str:
        lines = [f"# {MADE}; needs mod_headers and AllowOverride"]
        if kind == MANUAL:
            lines += ["Options -Indexes", "AddType text/javascript .js .mjs"]
            lines += ["AddType application/wasm .wasm"]
        lines.append("<IfModule mod_headers.c>")
        lines += [f'  Header always set {n} "{v}"' for n, v in headers(kind).items()]
        return "\n".join([*lines, "</IfModule>"]) + "\n"

    return made


def nginx(site: Path) -> str:
    """Lines to include in a `server` block, whatever path the site is served at."""
    names = {DEMO: DEMO_FOLDER, LIVE: LIVE_FOLDER}
    lines = [
        f"# {MADE}; for a server block: include …/nginx-headers.conf;",
        "# A location with an add_header of its own needs these lines as well.",
        f'set $rlxweb_policy "{written(directives(MANUAL))}";',
    ]
    lines += [
        f'if ($uri ~ "/{folder}") {{ set $rlxweb_policy "{written(directives(k))}"; }}'
        for k, folder in names.items()
    ]
    lines.append(f"add_header {POLICY} $rlxweb_policy always;")
    lines += [f'add_header {n} "{value}" always;' for n, value in ALWAYS.items()]
    # its own table of types has no modules by that name, which no browser then runs
    lines.append("location ~ \\.mjs$ { types { } default_type text/javascript; }")
    return "\n".join(lines) + "\n"


def vercel(site: Path) -> str:
    """`vercel.json`: of the rules that fit, the last one's value is taken."""
    sources = {
        MANUAL: "/(.*)",
        DEMO: f"/{DEMO_FOLDER}(.*)",
        LIVE: f"/{LIVE_FOLDER}(.*)",
    }
    rules = [
        {
            "source": source,
            "headers": [{"key": n, "value": v} for n, v in headers(kind).items()],
        }
        for kind, source in sources.items()
    ]
    return _json({"headers": rules})


def azure(site: Path) -> str:
    """`staticwebapp.config.json`: the first route that fits goes before the rest."""
    routes = [
        {"route": f"/{folder}*", "headers": headers(kind)}
        for kind, folder in ((LIVE, LIVE_FOLDER), (DEMO, DEMO_FOLDER))
    ]
    types = {".mjs": "text/javascript", ".wasm": "application/wasm"}
    return _json(
        {"globalHeaders": headers(MANUAL), "routes": routes, "mimeTypes": types}
    )


def _json(said: object) -> str:
    return json.dumps(said, indent=1) + "\n"


FILES: dict[str, Callable[[Path], str]] = {
    "_headers": netlify,
    ".htaccess": apache(MANUAL),
    f"{DEMO_FOLDER}.htaccess": apache(DEMO),
    f"{LIVE_FOLDER}.htaccess": apache(LIVE),
    "nginx-headers.conf": nginx,
    "vercel.json": vercel,
    "staticwebapp.config.json": azure,
    # or GitHub Pages leaves out files whose names begin with an underscore
    ".nojekyll": lambda site: "",
}
"""Path in the site → what is in it."""
