"""The client of S3: how it is opened, and what its errors mean for the caller. Needs the extra ``viewstamp[s3]``.

Errors are translated where they occur, and their text is cleaned, because libraries put parts of requests into theirs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from viewstamp.errors import ConfigError, StorageError, StorageFullError, ViewstampError

__all__ = ["S3Client", "load_s3"]

_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 20.0
"""Longest silence of the store inside an answer."""

_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_FULL: Final = frozenset({"QuotaExceeded", "ServiceQuotaExceeded", "XMinioStorageFull", "InsufficientStorage"})
_PLACE: Final = frozenset(
    {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed", "301", "307"}
)
_BUSY: Final = frozenset(
    {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "ConditionalRequestConflict"}
)
_USER = re.compile(r"//[^/@\s]*@")
_KEY = re.compile(r"[A-Za-z0-9+/=]{20,}")
"""A text that may be a key, a token or a signature."""


def load_s3() -> Any:
    """Return the package botocore. Raises ConfigError if it is not installed."""
    try:
        import botocore.config
        import botocore.exceptions
        import botocore.loaders
        import botocore.session
    except ImportError as error:
        raise ConfigError(
            f"an archive in S3 needs botocore, which is not installed ({error})",
            remedy="pip install 'viewstamp[archive,s3]'",
        ) from error
    return botocore


@cache
def _descriptions() -> Any:
    """Return what reads botocore's descriptions of S3 from its files, and keeps them.

    All clients of this process share it. A client that reads them anew takes 62 ms of processor time instead of 11 ms.
    """
    return load_s3().loaders.create_loader()


class S3Client:
    """A client of botocore whose errors are those of viewstamp. For several threads at once.

    Calls raise ConnectionError if another attempt may succeed, StorageError if the store refuses them, and
    FileNotFoundError, FileExistsError as :meth:`call` describes.
    """

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        """Search for the credentials, which may take seconds; nothing else is sent.

        Args:
          where: the store, for messages.
          options: arguments of botocore's client, for example ``endpoint_url``.
        """
        self._where = where
        self._botocore = load_s3()
        for name in ("botocore", "urllib3"):  # At the level DEBUG they log the headers of requests, with tokens.
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.INFO)
        config = self._botocore.config.Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": 1},
            # Stores other than Amazon's refuse the checksums that newer releases of botocore send by default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._secrets: tuple[str, ...] = ()
        try:
            session = self._botocore.session.Session()
            session.register_component("data_loader", _descriptions())
            found = session.get_credentials()
            values = [options.get("aws_secret_access_key"), options.get("aws_session_token")]
            if found is not None:
                values += [found.access_key, found.secret_key, found.token]
            self._secrets = tuple(str(value) for value in values if value)
            self._client = session.create_client("s3", config=config, **options)
        except self._botocore.exceptions.BotoCoreError as error:
            raise self._translated("open it", error) from None
        except ValueError as error:
            raise StorageError(
                f"{where} cannot be opened: {self._clean(error)}", remedy="correct AWS_ENDPOINT_URL and AWS_REGION"
            ) from None

    def call(self, action: str, request: str, **arguments: Any) -> dict[str, Any]:
        """Make a request, and return the answer.

        Args:
          action: for messages.
          request: the name of the method of botocore.
          arguments: of that method.

        Raises:
          FileNotFoundError: there is no such object or upload.
          FileExistsError: the condition of the request does not hold, because the name is in use.
        """
        try:
            answer: dict[str, Any] = getattr(self._client, request)(**arguments)
        except Exception as error:
            raise self._translated(action, error) from None
        return answer

    def read(self, action: str, size: int, **arguments: Any) -> tuple[str, bytes]:
        """Return the Content-Range and the bytes of a part of an object; "" = the store has ignored the range.

        If the store sends more than ``size`` bytes, one byte more is returned, and the others are not read, because
        they would use up the memory of this process.

        Raises: as :meth:`call`, and EOFError: the object ends before the range.
        """
        answer = self.call(action, "get_object", **arguments)
        status = int(answer["ResponseMetadata"]["HTTPStatusCode"])
        body = answer["Body"]
        try:
            # A store that ignores the range may send a whole object, which is not read.
            if status != 206:
                return "", b""
            data = bytearray()
            # Only a read at the end of the answer notices that the connection broke, so a short one is not the last.
            while len(data) <= size and (piece := body.read(size + 1 - len(data))):
                data += piece
            return str(answer.get("ContentRange", "")), bytes(data)
        except Exception as error:
            raise self._translated(action, error) from None
        finally:
            body.close()

    def _translated(self, action: str, error: Exception) -> Exception:
        known = self._botocore.exceptions
        if isinstance(error, ViewstampError):
            return error
        if isinstance(error, known.ClientError):
            return self._answered(action, error)
        broken = (known.HTTPClientError, known.ConnectionError, known.IncompleteReadError, known.MetadataRetrievalError)
        if isinstance(error, (OSError, *broken)) or type(error).__module__.startswith("urllib3"):
            return ConnectionError(self._clean(error))
        if isinstance(error, known.BotoCoreError):
            return StorageError(
                f"{self._where}: this process cannot {action}: {self._clean(error)}",
                remedy="give it credentials in one of the ways of the AWS tools, for example AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, and a region in AWS_REGION",
            )
        return StorageError(
            f"{self._where} failed to {action}: {type(error).__name__}: {self._clean(error)}",
            remedy="check the store and its URL",
        )

    def _answered(self, action: str, error: Any) -> Exception:
        """Translate an answer of the store that is an error."""
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        said = self._clean(f"{code} (HTTP {status}): {error.response.get('Error', {}).get('Message', '')}")
        if status == 412:
            return FileExistsError(f"{self._where}: the name is in use")
        if status == 416:
            return EOFError("the object ends before the range")
        if code in ("NoSuchKey", "NoSuchUpload") or (status == 404 and code in ("404", "NotFound")):
            return FileNotFoundError(f"{self._where}: there is no such object ({code})")
        if code in _FULL or status == 507:
            return StorageFullError(
                f"{self._where} is full: it cannot {action} ({said})",
                remedy="free space there, or raise its quota; until then the log keeps the records",
            )
        if code in _CLOCK:
            here = "the clock of this machine differs too much from that of the store"
            return StorageError(
                f"{self._where} refuses to {action}, because {here} ({said})",
                remedy="correct this machine's clock, for example with NTP",
            )
        if code in _PLACE:
            return StorageError(
                f"{self._where} refuses to {action}: {said}",
                remedy="create the bucket, or correct the URL, AWS_REGION and AWS_ENDPOINT_URL_S3",
            )
        if code in _BUSY or status == 429 or (status >= 500 and status != 501):
            return ConnectionError(said)
        return StorageError(
            f"{self._where} refuses to {action}: {said}",
            remedy="give these credentials the right to list, read, write and delete objects and uploads there",
        )

    def _clean(self, error: object) -> str:
        """Return the text of an error without what may be secret."""
        text = str(error) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "...")
        return _KEY.sub("...", _USER.sub("//...@", text))[:500]
