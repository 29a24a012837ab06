"""Names of the Welch strategies as RLX spells them: an enum and its parser."""

from __future__ import annotations

from enum import Enum

from rlxweb.core.errors import UsageError, shown


class WelchPeaksStrategy(Enum):
    """Method that finds the peaks. The value is RLX's label.

    ULTRA_FAST        the first segment alone, on the CPU
    FAST_STREAMING    every segment, on the CPU
    RLX_COMPILED      a compiled graph on a device ("fused")
    LEARNED_COMPILED  a pruned transform that was trained for the job
    BAND              the bins of a band alone; RLX has no such strategy
    """

    AUTO = "auto"
    ULTRA_FAST = "ultra_fast_rustfft"
    FAST_STREAMING = "fast_streaming_rustfft"
    RLX_COMPILED = "rlx_compiled"
    LEARNED_COMPILED = "learned_compiled"
    BAND = "band"

    @property
    def label(self) -> str:
        return self.value


_NAMES = {
    WelchPeaksStrategy.AUTO: "auto",
    WelchPeaksStrategy.ULTRA_FAST: "ultra ultra_fast 1seg",
    WelchPeaksStrategy.FAST_STREAMING: "fast streaming fast_streaming rustfft 2seg",
    WelchPeaksStrategy.RLX_COMPILED: "rlx compiled gpu fused",
    WelchPeaksStrategy.LEARNED_COMPILED: "learned",
    WelchPeaksStrategy.BAND: "band decimated",
}
_BY_NAME = {n: s for s, names in _NAMES.items() for n in (*names.split(), s.value)}
_BY_NAME[""] = WelchPeaksStrategy.AUTO


def parse_welch_peaks_strategy(text: str | WelchPeaksStrategy) -> WelchPeaksStrategy:
    """Return the strategy with a name; case, outer space and "-" for "_" do not matter.

    Errors   UsageError for a name that means none.
    """
    if isinstance(text, WelchPeaksStrategy):
        return text
    name = text.strip().lower().replace("-", "_") if isinstance(text, str) else None
    if name not in _BY_NAME:
        message = f"unknown welch peaks strategy {shown(text)}"
        raise UsageError(
            "strategy", f"{message} (try auto|ultra|fast|rlx|band|learned)"
        )
    return _BY_NAME[name]
