"""Passages of the visitor's notes, and which of them a question is near."""

import time
from pathlib import Path

from rlxweb.models import MiniLM, SearchIndex

ROOM = Path("/notes")
MODEL = INDEX = None


def load(args, buffers):
    """The model of these files. An older one and its index are let go."""
    global MODEL, INDEX
    files = dict(zip(args["names"], buffers, strict=True))
    made = MiniLM.load(files)
    if MODEL is not None:
        MODEL.close()
    MODEL, INDEX = made, None
    return {"width": MODEL.width, "tokens": MODEL.max_tokens}


async def read(args, buffers):
    """Embeds every passage of the notes, and posts how far it is."""
    global INDEX
    for path in ROOM.glob("*/*"):
        path.unlink()
    paths = []
    for at, (name, raw) in enumerate(zip(args["names"], buffers, strict=True)):
        folder = ROOM / str(at)
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / Path(name).name)
        paths[-1].write_bytes(raw)
    began = time.perf_counter()
    INDEX = await SearchIndex.build_async(
        MODEL,
        paths,
        args["unit"],
        device=args["device"],
        cache=False,
        tell=lambda done, whole: post({"done": done, "of": whole}),  # noqa: F821
    )
    seconds = time.perf_counter() - began
    return {"passages": len(INDEX.passages), "seconds": seconds}


async def ask(args, buffers):
    """The passages nearest to a question, nearest first."""
    began = time.perf_counter()
    hits = await INDEX.search_async(args["question"], args["k"], device=args["device"])
    return {
        "seconds": time.perf_counter() - began,
        "hits": [
            {
                "score": hit.score,
                "text": hit.passage.text,
                "file": int(Path(hit.passage.path).parent.name),
                "line": hit.passage.line,
            }
            for hit in hits
        ],
    }
