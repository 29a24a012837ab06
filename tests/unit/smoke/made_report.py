"""Reports `rlxweb.smoke/1` made by hand, for what only reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any

COUNTED = ("right", "wrong", "refused", "known", "unexpected pass", "not run")


def row(case: str, word: str = "right", **more: Any) -> dict[str, Any]:
    """A case; `family/op/number` is its name."""
    family, op = case.split("/")[:2]
    judged = word in ("right", "wrong", "known", "unexpected pass")
    return {
        "case": case,
        "family": family,
        "op": op,
        "variant": "",
        "inputs": [[[3, 4], "f32"]],
        "attrs": {},
        "note": "",
        "word": word,
        "why": "" if word == "right" else f"{word} for a reason",
        "raised": "",
        "max_error": 1e-7 if judged else None,
        "share": (0.1 if word == "right" else "inf") if judged else None,
        "allowed": 1e-6 if judged else None,
        "wrong": 0 if word == "right" else 2,
        "elements": 12 if judged else None,
        "first": {"at": [1, 2], "got": "nan", "want": 0.5} if word == "wrong" else None,
        "cold_ms": 12.5 if judged else None,
        "warm_ms": 2.5 if judged else None,
        "gb_s": 1.25 if judged else None,
        "gflop_s": None,
        **more,
    }


def engine(key: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An engine on lavapipe of Mesa 22.3.6, unless it is said otherwise."""
    words = Counter(one["word"] for one in rows)
    bad = [f"{one['case']}: {one['why']}" for one in rows if one["word"] == "wrong"]
    wrong = next(iter(bad), "")
    return {
        "key": key,
        "device": key.split(":")[0],
        "adapter": "llvmpipe (LLVM 15.0.6, 256 bits)",
        "kind": "here",
        "backend": "vulkan",
        "vendor": "llvmpipe",
        "driver": "Mesa 22.3.6 (LLVM 15.0.6)",
        "compiler": "naga",
        "software": True,
        "word": "wrong" if wrong else "right",
        "why": wrong,
        "seconds": 1.5,
        "counts": {word: words[word] for word in COUNTED},
        "rows": list(rows),
        **more,
    }


def report(*engines: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole document."""
    return {
        "schema": "rlxweb.smoke/1",
        "versions": {"rlxweb": "0.1.0", "numpy": "2.4.6"},
        "machine": {"system": "Linux", "processor": "x86_64"},
        "level": "standard",
        "pattern": "",
        "began": "2026-11-22T15:50:00+00:00",
        "seconds": 3.25,
        "required": [],
        "engines": list(engines),
        "exit_code": int(any(one["word"] == "wrong" for one in engines)),
        **more,
    }
