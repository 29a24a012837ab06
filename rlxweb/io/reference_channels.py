"""Selection of reference channels, which are read with the selected channels and not
shown.

Owns which channels of a file a reference names, and that they share a rate with those
it is taken from. What is done with them is the business of `preparing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank
from rlxweb.io.channel_selection import choose_channels
from rlxweb.io.format_reader_interface import FileChannel, FileContents
from rlxweb.io.preprocessing import AVERAGE, Reference, coerce_reference_names


def reference_channels(
    context: str,
    channels: Sequence[FileChannel],
    names: Sequence[str],
    reference: Reference | None,
) -> tuple[int, ...]:
    """Return the indices of the channels that a reference names, in the notation used
    to select channels.

    None of them where it is None or "average", which is of the channels taken.

    Errors   as `choose_channels`
    """
    reference_names = (
        None if reference is None else coerce_reference_names(reference, context)
    )
    if reference_names is None or (
        reference_names == [AVERAGE] and AVERAGE not in names
    ):
        return ()
    return choose_channels(context, channels, names, reference_names)


def check_rates(
    context: str,
    contents: FileContents,
    names: Sequence[str],
    references: Sequence[int],
    members: Mapping[int, Sequence[int]],
) -> None:
    """Raise UsageError if a reference has another rate than a selected channel.

    members  of each stream of the file, by its number: the channels taken

    Errors   UsageError with both rates
    """
    stream_of = {
        index: n
        for n, stream in enumerate(contents.streams)
        for index in stream.channel_indices
    }
    for index in references:
        for n, (selected, *_) in members.items():
            if n != stream_of[index]:
                reference_stream = contents.streams[stream_of[index]]
                selected_stream = contents.streams[n]
                raise UsageError(
                    context,
                    f"the rate of the reference {names[index]!r} is "
                    f"{_rate_text(reference_stream.fs)}, the rate of channel "
                    f"{names[selected]!r} is {_rate_text(selected_stream.fs)}",
                    "a reference must have the same rate as the channels",
                    Advice(
                        "select only channels with the rate of the reference: {}",
                        channels=Blank("NAMES"),
                    ),
                )


def _rate_text(fs: float | None) -> str:
    """Return a rate in words."""
    return "unknown" if fs is None else f"{fs:g} Hz"
