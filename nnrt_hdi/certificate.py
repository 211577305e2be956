"""Facts about certificates in PEM files, read without a library for X.509."""

import base64
import binascii
import re
from datetime import datetime, timezone
from pathlib import Path

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END", re.DOTALL)
# The sequence of two times, each a UTCTime or a GeneralizedTime (RFC 5280, 4.1.2.5); the second is the group.
_VALIDITY = re.compile(rb"\x30[\x1e-\x22](?:\x17\x0d|\x18\x0f)\d{12,14}Z(?:\x17\x0d|\x18\x0f)(\d{12,14})Z")
_SHORT_YEAR = 12  # Digits of a UTCTime.


def expiry_of(path: str | Path) -> datetime | None:
    """Return when the first certificate in a file expires, or None if the file doesn't tell."""
    try:
        pem = _PEM.search(Path(path).read_bytes())
        validity = _VALIDITY.search(base64.b64decode(pem[1])) if pem else None
        if validity is None:
            return None
        until = validity[1].decode()
        return datetime.strptime(until, "%y%m%d%H%M%S" if len(until) == _SHORT_YEAR else "%Y%m%d%H%M%S").replace(
            tzinfo=timezone.utc
        )
    except (OSError, ValueError, binascii.Error):
        return None
