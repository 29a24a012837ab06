"""What keeps a remote file from being read, told as our own errors.

Owns the words for every fault of a server, a network and a library on the way. Errors
of others quote URLs and headers, so nothing of theirs is told uncleaned, nor chained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlxweb.errors import RecordingError, RlxError, did_you_mean
from rlxweb.io.access import Access
from rlxweb.io.urls import scheme_of, shown_url
from rlxweb.whole_file import reason

EXTRA = "pip install rlxweb[dask]"
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
}
_CREDENTIALS = (
    "give them where the library of this store looks for them (for S3: AWS_* in the "
    "environment, a profile, a role); a public file is read with the storage option "
    "anon set to true"
)
_REFUSED = (
    "check that the credentials are those of this store and have not expired; a signed "
    "URL has to be made again"
)
_NETWORK = "check the name of the server, and the network of this machine"
_LATER = "try again later"


@dataclass(frozen=True, slots=True)
class Named:
    """A remote file in messages: `url` is its own, with all its secrets.

    doing  what errors begin with
    """

    url: str
    access: Access

    @property
    def shown(self) -> str:
        return shown_url(self.url)

    @property
    def doing(self) -> str:
        return f"reading {self.shown!r}"

    def error(self, problem: str, rule: str = "", hint: str = "") -> RecordingError:
        """What is wrong with this file."""
        return RecordingError(self.doing, problem, rule, hint)

    def said(self, error: BaseException) -> str:
        """Somebody else's words in one line, without secrets."""
        return reason(Exception(self.access.cleaned(_words(error), self.url)))

    def status(self, status: int, words: str = "") -> RecordingError:
        """What an answer of HTTP means that gives no bytes."""
        problem, hint = _STATUS.get(status, ("", ""))
        if not problem:
            problem, hint = ("the server failed", _LATER)
            if status < 500:
                problem, hint = "the server refuses", "check the URL"
        words = self.access.cleaned(words, self.url)
        return self.error(f"{problem} (HTTP {status} {words}".rstrip() + ")", "", hint)

    def knows(self, error: BaseException) -> bool:
        """True for faults of a server or a network."""
        return isinstance(error, OSError) or any(
            kinds & {kind.__name__ for kind in type(error).__mro__}
            for kinds, _, _ in _KINDS
        )

    def told(self, error: BaseException) -> RecordingError:
        """The fault behind somebody else's exception."""
        kinds = {kind.__name__ for kind in type(error).__mro__}
        known = next((told for told in _KINDS if told[0] & kinds), None)
        status = getattr(error, "status", None)
        if known is None and isinstance(status, int) and status >= 300:
            return self.status(status)
        _, problem, hint = known or ((), "it cannot be read", "")
        return self.error(f"{problem} ({self.said(error)})", "", hint)

    def missing(self, error: ImportError) -> RecordingError:
        """A package that is not there."""
        scheme = scheme_of(self.url)
        package = _PACKAGES.get(scheme)
        hint = f"pip install {package}" if package else EXTRA
        if (error.name or "").partition(".")[0] == "fsspec":
            hint = f"{EXTRA} {package if package else ''}".rstrip()
        return self.error(
            f"a package that reads {scheme}:// is missing ({self.said(error)})",
            hint=hint,
        )

    def unknown(self, known: Iterator[str]) -> RecordingError:
        """A scheme that nobody reads."""
        scheme = scheme_of(self.url)
        return self.error(
            f"there is no file system {scheme!r}",
            "file:// and those of fsspec: s3://, gs://, https://, …",
            did_you_mean(scheme, known),
        )


_STATUS = {
    401: ("the server wants credentials", _CREDENTIALS),
    403: ("the server refuses", _REFUSED),
    404: ("there is no such file", "check the URL"),
    407: ("the proxy wants credentials", "set them where the proxy is set"),
    408: ("the server waited too long", _LATER),
    410: ("there is no such file any more", "check the URL"),
    429: ("the server asks to slow down", _LATER),
    503: ("the server asks to slow down", _LATER),
}
# Told by the names of their classes: their libraries may not even be there.
_KINDS: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset({"FileExpired"}), "the file changed while it was read", "open it again"),
    (
        frozenset({"FileNotFoundError"}),
        "there is no such file, or no such bucket",
        "check the URL",
    ),
    (frozenset({"IsADirectoryError"}), "it is a folder", "name a file inside it"),
    (
        frozenset(
            {
                "NoCredentialsError",
                "PartialCredentialsError",
                "DefaultCredentialsError",
                "ProfileNotFound",
            }
        ),
        "no credentials were found",
        _CREDENTIALS,
    ),
    (
        frozenset({"PermissionError", "TokenRetrievalError", "RefreshError"}),
        "the server refuses",
        _REFUSED,
    ),
    (
        frozenset({"InvalidURL", "InvalidUrlClientError", "NonHttpUrlClientError"}),
        "it is no URL",
        "check how it is written",
    ),
    (
        frozenset({"TooManyRedirects"}),
        "the server sends us from one URL to the next",
        "check the URL",
    ),
    (
        frozenset({"ClientConnectorCertificateError", "SSLError", "ClientSSLError"}),
        "the server's certificate does not hold",
        "check the name of the server",
    ),
    (
        frozenset({"TimeoutError", "ConnectTimeoutError", "ReadTimeoutError"}),
        "the server does not answer",
        _LATER,
    ),
    (
        frozenset(
            {"ClientConnectorError", "EndpointConnectionError", "ConnectionError"}
        ),
        "the server cannot be reached",
        _NETWORK,
    ),
)


def _words(error: BaseException) -> str:
    """What an exception says; botocore wraps the one that says it."""
    text = getattr(error, "strerror", None) or str(error)
    if not text and error.__cause__ is not None:
        text = str(error.__cause__)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def told_of(file: Named) -> Iterator[None]:
    """Whatever somebody else raises is a RecordingError about `file`.

    Not chained: a traceback would show what the message does not.
    """
    try:
        yield
    except RlxError:
        raise
    except ImportError as error:
        raise file.missing(error) from None
    except Exception as error:
        raise file.told(error) from None
