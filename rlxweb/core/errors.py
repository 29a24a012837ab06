"""Exception and warning classes of rlxweb.

Every message has up to four parts, in this order: what was being done, what went
wrong, the rule or limit with both numbers, what to do next. They stay on the exception
as fields, so that a caller can read them and the command line say a flag where Python
has a keyword. Names in a message are foreign text: all is shown by `printable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.core.message_text import Advice, printable
from rlxweb.core.message_text import did_you_mean as did_you_mean
from rlxweb.core.message_text import near as near

_MAX_SHOWN_PLACES = 3


class RlxError(Exception):
    """Base class of all rlxweb exceptions.

    doing    what was being done ("softmax 'probs' [8, 4096] f32")
    problem  what went wrong
    rule     the rule or limit, with both numbers
    hint     what to do next; each part an `Advice` where it names arguments
    """

    exit_code = 1
    _allowed_characters = (
        ""  # characters a message may hold although they cannot be seen
    )

    def __init__(
        self, doing: str, problem: str, rule: str = "", hint: str = ""
    ) -> None:
        super().__init__(doing, problem, rule, hint)
        self.doing = doing
        self.problem = problem
        self.rule = rule
        self.hint = hint

    def __str__(self) -> str:
        return self._format_message(self.doing, self.problem, self.rule, self.hint)

    @property
    def with_flags(self) -> str:
        """The message with arguments written as command-line flags."""
        return self._format_message(
            *map(_flag_text, (self.doing, self.problem, self.rule, self.hint))
        )

    def _format_message(self, doing: str, *parts: str) -> str:
        """Return the message, with hidden characters escaped."""
        text = "; ".join(part for part in parts if part)
        return printable(
            f"{doing}: {text}" if doing else text, keep=self._allowed_characters
        )


def _flag_text(part: str | RlxError) -> str:
    """Return one part of a message with arguments written as command-line flags."""
    if isinstance(part, Advice):
        return part.as_flags
    return part.with_flags if isinstance(part, RlxError) else part


def shown(value: object, most: int = 60) -> str:
    """Return the repr of a value, truncated to `most` characters."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python writes
        return f"an {type(value).__name__} with too many digits to print"
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
    """A dtype that the op or the device does not support."""


class GradientRefused(GraphError):
    """An op has no derivative."""


class TraceError(GraphError):
    """Python code in a traced function that a graph cannot express; names its line."""


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
        position = "" if self.offset is None else f" (byte {self.offset:,})"
        return self._format_message(
            self.doing, f"{self.problem}{position}", self.rule, self.hint
        )


class MissingOps(ModelError):
    """A model with operators that rlxweb does not read, all listed in `missing`.

    missing  by domain, name and version ("ai.onnx.ml.DictVectorizer (opset 3)"): the
             places of the nodes
    """

    exit_code = 4
    _allowed_characters = "\n"

    def __init__(self, doing: str, missing: Mapping[str, Sequence[str]]) -> None:
        self.missing = {name: tuple(places) for name, places in missing.items()}
        lines = [
            f"  {name}, {len(places)} time{'s' * (len(places) != 1)}: "
            + ", ".join(places[:_MAX_SHOWN_PLACES])
            + (", …" if len(places) > _MAX_SHOWN_PLACES else "")
            for name, places in self.missing.items()
        ]
        count_text = "an operator" if len(lines) == 1 else f"{len(lines)} operators"
        # Line breaks are ours; those of a name in a file would forge lines.
        message_lines = (
            f"the model has {count_text} that rlxweb does not support:",
            *map(printable, lines),
        )
        super().__init__(doing, "\n".join(message_lines))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.doing, self.missing), self.__dict__


class InputError(RlxError, ValueError):
    """Arrays passed to a run that do not match the graph's inputs."""

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
    """A result that the operating system could not store, for example on a full
    disk.
    """

    exit_code = 1


class Inexact(RlxError, ArithmeticError):
    """An approximation with an error above the permitted one."""


# --- the device -----------------------------------------------------------------


class DeviceError(RlxError, RuntimeError):
    """Base class of all device errors; driver messages may be long."""

    _allowed_characters = "\n"


class UnknownDevice(DeviceError, ValueError):
    """A device name that is not known."""

    exit_code = 2


class AdapterMissing(DeviceError):
    """No suitable adapter; `candidates` says why each was rejected."""

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
    """The device lacks a dtype, an op or a feature that is needed."""

    exit_code = 4


def not_installed(doing: str, package: str, hint: str = "") -> Unsupported:
    """Return the error for a missing optional package; `hint` replaces the pip
    command.
    """
    return Unsupported(
        doing,
        f"the required package {package} is not installed",
        hint=hint or f"pip install {package}",
    )


class CannotLend(Unsupported, BufferError):
    """An array on a device whose memory no other library can share."""


class Disagrees(Unsupported):
    """The device's result for a custom op differs from the op's reference."""


class LimitExceeded(DeviceError):
    """A device limit that splitting the work cannot satisfy."""

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
    """The device was lost; nothing it computed since can be trusted."""

    exit_code = 75


class GpuTimeout(DeviceError):
    """A wait passed its deadline; the device is treated as lost."""

    exit_code = 75


class SessionClosed(DeviceError):
    """A session, program or port used after `close`."""


class MustAwait(DeviceError):
    """A blocking call where only `await` can wait (a browser without JSPI)."""


class DeviceFallbackError(DeviceError):
    """Every device of a chain failed; `attempts` holds (device, error) in order.

    empty   why no device was tried, where there are no attempts
    """

    exit_code = 3

    def __init__(
        self, doing: str, attempts: Sequence[tuple[object, object]], empty: str = ""
    ) -> None:
        self.attempts = tuple(attempts)
        self.empty = empty
        lines = [f"  {_device_label(d)}: {e}" for d, e in self.attempts]
        all_failed = "\n".join(["all backends failed:", *lines])
        super().__init__(doing, all_failed if lines else empty)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.doing, self.attempts, self.empty), self.__dict__


def _device_label(device: object) -> str:
    """Return a device's label, or its text if it has none."""
    return str(getattr(device, "label", device))


class ClusterError(RlxError, RuntimeError):
    """No cluster is available, or none of its workers is usable."""

    exit_code = 3


class ClusterLost(ClusterError):
    """The cluster was lost during the work and did not return in time."""

    exit_code = 75


class WorkerFailed(ClusterError):
    """Workers failed repeatedly on one piece of work; others continue."""

    exit_code = 1


# --- what is said and does not stop anything ------------------------------------


class RlxWarning(UserWarning):
    """Base class of all rlxweb warnings.

    said  what is not as it was meant
    why   the reason or the advice, in words or as the error that gives it
    """

    _allowed_characters = "\n"

    def __init__(self, said: str, why: str | RlxError = "") -> None:
        text = f"{said}: {why}" if why else said
        super().__init__(printable(text, keep=self._allowed_characters))
        self.said = said
        self.why = why

    @property
    def with_flags(self) -> str:
        """The message with arguments written as command-line flags."""
        said, why = _flag_text(self.said), _flag_text(self.why)
        return printable(
            f"{said}: {why}" if why else said, keep=self._allowed_characters
        )


class EnvironmentWarning(RlxWarning):
    """An environment variable with an invalid value; names both."""


class CalibrationWarning(RlxWarning):
    """A calibration that could not be measured, read or stored."""


class RecordingWarning(RlxWarning):
    """A fault in a file that is read nevertheless, or data lost in a file that is
    written.
    """

    _allowed_characters = ""


class KernelWarning(RlxWarning):
    """Native CPU kernels that cannot be compiled here; NumPy computes instead."""

    _allowed_characters = ""


class PictureWarning(RlxWarning):
    """A figure that could not be drawn exactly as requested."""
