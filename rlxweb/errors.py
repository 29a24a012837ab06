"""The whole exception tree of rlxweb, on one page.

Every message has up to four parts, in this order: what was being done, what went
wrong, the rule or limit with both numbers, what to do next. They stay on the exception
as fields, so that a caller can read them and the command line say a flag where Python
has a keyword. Names in a message are foreign text: all is shown by `printable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.advice import Advice
from rlxweb.printable import printable
from rlxweb.spelling import did_you_mean as did_you_mean
from rlxweb.spelling import near as near

_SHOWN_PLACES = 3


class RlxError(Exception):
    """Root of the tree.

    doing    what was being done ("softmax 'probs' [8, 4096] f32")
    problem  what went wrong
    rule     the rule or limit, with both numbers
    hint     what to do next; each part an `Advice` where it names arguments
    """

    exit_code = 1
    _lines = ""  # characters a message may hold although they cannot be seen

    def __init__(
        self, doing: str, problem: str, rule: str = "", hint: str = ""
    ) -> None:
        super().__init__(doing, problem, rule, hint)
        self.doing = doing
        self.problem = problem
        self.rule = rule
        self.hint = hint

    def __str__(self) -> str:
        return self._message(self.doing, self.problem, self.rule, self.hint)

    @property
    def with_flags(self) -> str:
        """The message for a command line: arguments are named by their flags."""
        return self._message(
            *map(_with_flags, (self.doing, self.problem, self.rule, self.hint))
        )

    def _message(self, doing: str, *parts: str) -> str:
        said = "; ".join(part for part in parts if part)
        return printable(f"{doing}: {said}" if doing else said, keep=self._lines)


def _with_flags(part: str | RlxError) -> str:
    if isinstance(part, Advice):
        return part.as_flags
    return part.with_flags if isinstance(part, RlxError) else part


def shown(value: object, most: int = 60) -> str:
    """A value as it would be written in Python, cut where it is longer than `most`."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python writes
        return f"an {type(value).__name__} of more digits than can be written"
    return text if len(text) <= most else f"{text[:most]}…"


# --- what the caller handed us --------------------------------------------------


class UsageError(RlxError, ValueError):
    """An argument outside its domain (k <= 0, nperseg longer than the signal …)."""

    exit_code = 2


class GraphError(RlxError, ValueError):
    """The graph itself is wrong: unknown op, bad attribute, broken structure."""

    exit_code = 2


class UnknownOp(GraphError):
    """No op of that name is registered."""


class AttributeRefused(GraphError):
    """An op's attribute is missing, unknown, or outside its domain."""


class ShapeError(GraphError):
    """Shapes that do not fit the op, or an array that does not fit its input."""


class DTypeError(GraphError, TypeError):
    """A dtype the op or the device does not take."""


class GradientRefused(GraphError):
    """An op has no derivative."""


class TraceError(GraphError):
    """Python that a graph cannot say, in a function that is traced; names its line."""


class VerifyError(GraphError):
    """A graph whose structure breaks a rule (order, arity, declared type)."""


class ModelError(RlxError, ValueError):
    """A model file that is missing, broken, or contradicts itself."""

    exit_code = 2


class GraphFileError(ModelError):
    """A file of a graph or of weights that breaks a rule of its format.

    offset  the byte of the file at which it does; None where it is no one place
    """

    def __init__(
        self,
        doing: str,
        problem: str,
        rule: str = "",
        hint: str = "",
        offset: int | None = None,
    ) -> None:
        super().__init__(doing, problem, rule, hint)
        self.offset = offset

    def __str__(self) -> str:
        at = "" if self.offset is None else f" (byte {self.offset:,})"
        return self._message(self.doing, f"{self.problem}{at}", self.rule, self.hint)


class MissingOps(ModelError):
    """A model with operators that rlxweb does not read, all listed in `missing`.

    missing  by domain, name and version ("ai.onnx.ml.DictVectorizer (opset 3)"): the
             places of the nodes
    """

    exit_code = 4
    _lines = "\n"

    def __init__(self, doing: str, missing: Mapping[str, Sequence[str]]) -> None:
        self.missing = {name: tuple(places) for name, places in missing.items()}
        lines = [
            f"  {name}, {len(places)} time{'s' * (len(places) != 1)}: "
            + ", ".join(places[:_SHOWN_PLACES])
            + (", …" if len(places) > _SHOWN_PLACES else "")
            for name, places in self.missing.items()
        ]
        many = "an operator" if len(lines) == 1 else f"{len(lines)} operators"
        # Line breaks are ours; those of a name in a file would forge lines.
        every = (
            f"the model has {many} that rlxweb does not read:",
            *map(printable, lines),
        )
        super().__init__(doing, "\n".join(every))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.doing, self.missing), self.__dict__


class InputError(RlxError, ValueError):
    """The arrays given to a run are not the ones the graph asks for."""

    exit_code = 2


class UnknownName(InputError, KeyError):
    """A param, input or channel name that does not exist."""

    __str__ = RlxError.__str__


class NotFinite(InputError):
    """NaN or infinity where the policy refuses it."""


class IndexRefused(InputError, IndexError):
    """A gather index outside its table."""


class RecordingError(RlxError, OSError):
    """A recording that is missing, unreadable, truncated or of the wrong format."""

    exit_code = 2
    __str__ = RlxError.__str__


class NotWritten(RecordingError):
    """A result that the system would not take: the disk is full, say."""

    exit_code = 1


class Inexact(RlxError, ArithmeticError):
    """A way that saves arithmetic would be wrong by more than was allowed."""


# --- the device -----------------------------------------------------------------


class DeviceError(RlxError, RuntimeError):
    """Root of everything a device can do to us; what a driver says may be long."""

    _lines = "\n"


class UnknownDevice(DeviceError, ValueError):
    """A device name that means nothing."""

    exit_code = 2


class AdapterMissing(DeviceError):
    """No adapter of the wanted kind; `candidates` says why each was not taken."""

    exit_code = 3

    def __init__(
        self,
        doing: str,
        problem: str,
        rule: str = "",
        hint: str = "",
        candidates: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(doing, problem, rule, hint)
        self.candidates = tuple(candidates)


class Unsupported(DeviceError):
    """The device cannot run that: a dtype, an op or a feature is missing."""

    exit_code = 4


def not_installed(doing: str, package: str, hint: str = "") -> Unsupported:
    """What is raised where an optional package is missing; by its name, else `hint`."""
    return Unsupported(
        doing,
        f"it needs the package {package}, which is not installed",
        hint=hint or f"pip install {package}",
    )


class CannotLend(Unsupported, BufferError):
    """An array on a device that no other library can use in its place."""


class Disagrees(Unsupported):
    """The device gives other numbers for a custom op than the op's reference."""


class LimitExceeded(DeviceError):
    """A device limit that no split could bring the work under."""

    exit_code = 4


class ShaderRejected(DeviceError):
    """The driver refused a shader; `source` holds the generated text."""

    def __init__(
        self,
        doing: str,
        problem: str,
        rule: str = "",
        hint: str = "",
        source: str = "",
    ) -> None:
        super().__init__(doing, problem, rule, hint)
        self.source = source


class OutOfMemory(DeviceError):
    """The device has no memory left for a buffer."""


class DeviceLost(DeviceError):
    """The device went away; nothing it computed since can be trusted."""

    exit_code = 75


class GpuTimeout(DeviceError):
    """A wait passed its deadline; the device is treated as lost."""

    exit_code = 75


class SessionClosed(DeviceError):
    """A session, program or port was used after `close`."""


class MustAwait(DeviceError):
    """A blocking call where only `await` can wait (a browser without JSPI)."""


class DeviceFallbackError(DeviceError):
    """Every device of a chain failed; `attempts` is (device, error) in order.

    empty   why no device was tried, where there are no attempts
    """

    exit_code = 3

    def __init__(
        self, doing: str, attempts: Sequence[tuple[object, object]], empty: str = ""
    ) -> None:
        self.attempts = tuple(attempts)
        self.empty = empty
        lines = [f"  {_label(d)}: {e}" for d, e in self.attempts]
        all_failed = "\n".join(["all backends failed:", *lines])
        super().__init__(doing, all_failed if lines else empty)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.doing, self.attempts, self.empty), self.__dict__


def _label(device: object) -> str:
    return str(getattr(device, "label", device))


class ClusterError(RlxError, RuntimeError):
    """No cluster is there, or none of its workers can be used."""

    exit_code = 3


class ClusterLost(ClusterError):
    """The cluster went away while it worked, and did not come back in time."""

    exit_code = 75


class WorkerFailed(ClusterError):
    """Workers broke down over one piece of work, time and again; others go on."""

    exit_code = 1


# --- what is said and does not stop anything ------------------------------------


class RlxWarning(UserWarning):
    """Root of the warnings.

    said  what is not as it was meant
    why   the reason or the advice, in words or as the error that gives it
    """

    _lines = "\n"

    def __init__(self, said: str, why: str | RlxError = "") -> None:
        text = f"{said}: {why}" if why else said
        super().__init__(printable(text, keep=self._lines))
        self.said = said
        self.why = why

    @property
    def with_flags(self) -> str:
        """The message for a command line, as `RlxError.with_flags`."""
        said, why = _with_flags(self.said), _with_flags(self.why)
        return printable(f"{said}: {why}" if why else said, keep=self._lines)


class EnvironmentWarning(RlxWarning):
    """An environment variable that could not be followed; names it and its value."""


class CalibrationWarning(RlxWarning):
    """A calibration that could not be made, read or kept."""


class RecordingWarning(RlxWarning):
    """A fault of a file that is read all the same, or a loss of one that is written."""

    _lines = ""


class KernelWarning(RlxWarning):
    """Kernels for the CPU that cannot be compiled here; NumPy computes."""

    _lines = ""


class PictureWarning(RlxWarning):
    """A picture that could not be drawn quite as it was meant."""
