"""Reference channels of a file: read beside the channels that are taken, and not shown.

Owns which channels of a file a reference names, and that they share a rate with those
it is taken from. What is done with them is the business of `preparing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.advice import Advice, Blank
from rlxweb.errors import UsageError
from rlxweb.io.channels import choose_channels
from rlxweb.io.contents import Contents, Found
from rlxweb.io.preparing import AVERAGE, Reference, references


def reference_channels(
    doing: str,
    found: Sequence[Found],
    names: Sequence[str],
    reference: Reference | None,
) -> tuple[int, ...]:
    """Indices of the channels that a reference names, as channels are named for taking.

    None of them where it is None or "average", which is of the channels taken.

    Errors   as `choose_channels`
    """
    wanted = None if reference is None else references(reference, doing)
    if wanted is None or (wanted == [AVERAGE] and AVERAGE not in names):
        return ()
    return choose_channels(doing, found, names, wanted)


def check_rates(
    doing: str,
    contents: Contents,
    names: Sequence[str],
    referred: Sequence[int],
    members: Mapping[int, Sequence[int]],
) -> None:
    """Refuse a reference of another rate than a channel that is taken.

    members  of each stream of the file, by its number: the channels taken

    Errors   UsageError with both rates
    """
    stream_of = {at: n for n, one in enumerate(contents.streams) for at in one.members}
    for at in referred:
        for n, (other, *_) in members.items():
            if n != stream_of[at]:
                mine, theirs = contents.streams[stream_of[at]], contents.streams[n]
                raise UsageError(
                    doing,
                    f"the reference {names[at]!r} has {_rate(mine.fs)}, and "
                    f"{names[other]!r} {_rate(theirs.fs)}",
                    "a reference is of the same rate as the channels",
                    Advice("take those alone: {}", channels=Blank("NAMES")),
                )


def _rate(fs: float | None) -> str:
    return "no rate" if fs is None else f"{fs:g} Hz"
