"""Translation of the errors of remote files into RecordingError, without secrets.

Owns the words for every fault of a server, a network and a library on the way. Errors
of others quote URLs and headers, so nothing of theirs is told uncleaned, nor chained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import RecordingError, RlxError, did_you_mean
from rlxweb.io.storage_options import StorageAccess
from rlxweb.io.url_parsing_and_redaction import redact_url, url_scheme

INSTALL_HINT = "pip install rlxweb[dask]"
_PACKAGE_BY_SCHEME = {
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
_CREDENTIALS_HINT = (
    "set the credentials where the storage library looks for them (for S3: "
    "environment variables AWS_*, a profile or a role); for a public file, set the "
    "storage option anon to true"
)
_REFUSED_HINT = (
    "check that the credentials belong to this store and have not expired; "
    "if the URL is signed, create a new one"
)
_NETWORK_HINT = "check the server name and the network connection"
_RETRY_HINT = "try again later"


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    """Location of a remote file and its error messages; `url` still contains its
    secrets.

    context  what errors begin with
    """

    url: str
    access: StorageAccess

    @property
    def redacted_url(self) -> str:
        """The URL without its secrets."""
        return redact_url(self.url)

    @property
    def context(self) -> str:
        """Beginning of every error message about this file."""
        return f"reading {self.redacted_url!r}"

    def error(self, problem: str, rule: str = "", hint: str = "") -> RecordingError:
        """Return the error for a problem with this file."""
        return RecordingError(self.context, problem, rule, hint)

    def redact_error(self, error: BaseException) -> str:
        """Return the message of another library's error in one line, without
        secrets.
        """
        return error_reason(Exception(self.access.redact(_error_text(error), self.url)))

    def http_error(self, status: int, words: str = "") -> RecordingError:
        """Return the error for an HTTP status that gives no bytes."""
        problem, hint = _HTTP_PROBLEMS.get(status, ("", ""))
        if not problem:
            problem, hint = ("the server failed", _RETRY_HINT)
            if status < 500:
                problem, hint = "the server refuses the request", "check the URL"
        words = self.access.redact(words, self.url)
        return self.error(f"{problem} (HTTP {status} {words}".rstrip() + ")", "", hint)

    def is_remote_error(self, error: BaseException) -> bool:
        """Return whether an error comes from a server or the network."""
        return isinstance(error, OSError) or any(
            class_names & {error_class.__name__ for error_class in type(error).__mro__}
            for class_names, _, _ in _KNOWN_ERRORS
        )

    def translate_error(self, error: BaseException) -> RecordingError:
        """Return the RecordingError for another library's exception."""
        class_names = {error_class.__name__ for error_class in type(error).__mro__}
        known_error = next(
            (candidate for candidate in _KNOWN_ERRORS if candidate[0] & class_names),
            None,
        )
        status = getattr(error, "status", None)
        if known_error is None and isinstance(status, int) and status >= 300:
            return self.http_error(status)
        _, problem, hint = known_error or ((), "the file cannot be read", "")
        return self.error(f"{problem} ({self.redact_error(error)})", "", hint)

    def missing_package_error(self, error: ImportError) -> RecordingError:
        """Return the error for a package that is not installed."""
        scheme = url_scheme(self.url)
        package = _PACKAGE_BY_SCHEME.get(scheme)
        hint = f"pip install {package}" if package else INSTALL_HINT
        if (error.name or "").partition(".")[0] == "fsspec":
            hint = f"{INSTALL_HINT} {package if package else ''}".rstrip()
        return self.error(
            f"a package for {scheme}:// is not installed ({self.redact_error(error)})",
            hint=hint,
        )

    def unknown_scheme_error(self, protocols: Iterator[str]) -> RecordingError:
        """Return the error for a URL scheme that fsspec does not support."""
        scheme = url_scheme(self.url)
        return self.error(
            f"the file system {scheme!r} is not supported",
            "use file:// or a scheme of fsspec: s3://, gs://, https://, …",
            did_you_mean(scheme, protocols),
        )


_HTTP_PROBLEMS = {
    401: ("the server requires credentials", _CREDENTIALS_HINT),
    403: ("the server refuses the request", _REFUSED_HINT),
    404: ("the file does not exist", "check the URL"),
    407: (
        "the proxy requires credentials",
        "add the credentials where the proxy is configured",
    ),
    408: ("the server timed out waiting for the request", _RETRY_HINT),
    410: ("the file no longer exists", "check the URL"),
    429: ("the server limits the request rate", _RETRY_HINT),
    503: ("the server is overloaded or limits the request rate", _RETRY_HINT),
}
# Told by the names of their classes: their libraries may not even be there.
_KNOWN_ERRORS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"FileExpired"}),
        "the file changed while it was being read",
        "open the recording again",
    ),
    (
        frozenset({"FileNotFoundError"}),
        "the file or bucket does not exist",
        "check the URL",
    ),
    (
        frozenset({"IsADirectoryError"}),
        "expected a file, got a folder",
        "pass the URL of a file in this folder",
    ),
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
        _CREDENTIALS_HINT,
    ),
    (
        frozenset({"PermissionError", "TokenRetrievalError", "RefreshError"}),
        "the server refuses the request",
        _REFUSED_HINT,
    ),
    (
        frozenset({"InvalidURL", "InvalidUrlClientError", "NonHttpUrlClientError"}),
        "the URL is not valid",
        "check the spelling of the URL",
    ),
    (
        frozenset({"TooManyRedirects"}),
        "the server redirects too many times",
        "check the URL",
    ),
    (
        frozenset({"ClientConnectorCertificateError", "SSLError", "ClientSSLError"}),
        "the server certificate is not valid",
        "check the server name",
    ),
    (
        frozenset({"TimeoutError", "ConnectTimeoutError", "ReadTimeoutError"}),
        "the server does not respond",
        _RETRY_HINT,
    ),
    (
        frozenset(
            {"ClientConnectorError", "EndpointConnectionError", "ConnectionError"}
        ),
        "the server cannot be reached",
        _NETWORK_HINT,
    ),
)


def _error_text(error: BaseException) -> str:
    """Return class and message of an exception; an empty message is replaced by that of
    its cause.
    """
    text = getattr(error, "strerror", None) or str(error)
    if not text and error.__cause__ is not None:
        text = str(error.__cause__)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def translate_remote_errors(location: RemoteLocation) -> Iterator[None]:
    """Translate exceptions of other libraries into RecordingError about this file.

    Not chained: a traceback would show what the message does not.
    """
    try:
        yield
    except RlxError:
        raise
    except ImportError as error:
        raise location.missing_package_error(error) from None
    except Exception as error:
        raise location.translate_error(error) from None
