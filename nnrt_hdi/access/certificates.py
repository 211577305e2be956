"""TLS of addresses that listen: their certificate and its key, and the authority of clients' certificates."""

import logging
import ssl
import stat
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.certificate import expiry_of
from nnrt_hdi.errors import InvalidFile, InvalidParameter

_log = logging.getLogger(__name__)

_FOR_EVERYBODY = stat.S_IROTH | stat.S_IWOTH
# Before a certificate expires the log says so.
_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Content of the files, which OpenSSL has tried, and OpenSSL's context with it."""

    certificate: bytes
    key: bytes = field(repr=False)
    # None if clients are asked for no certificates.
    client_ca: bytes | None
    context: ssl.SSLContext


def watch_certificates(tls_cert: str, tls_key: str, tls_client_ca: str) -> WatchedFiles[Certificates] | None:
    """Return the content of the files, read again when they change; None if no file is given.

    Raises InvalidParameter if a file is missing among the given ones, and InvalidFile for a file that can't be used.
    """
    if not (tls_cert or tls_key or tls_client_ca):
        return None
    if not (tls_cert and tls_key):
        given = f"--tls-cert is {tls_cert!r} and --tls-key {tls_key!r}"
        raise InvalidParameter(f"{given}; TLS needs both", place="TLS")
    certificate, key = Path(tls_cert), Path(tls_key)
    client_ca = Path(tls_client_ca) if tls_client_ca else None
    files = [certificate, key, *([client_ca] if client_ca else [])]
    return WatchedFiles(files, lambda: _read(certificate, key, client_ca))


def _read(certificate: Path, key: Path, client_ca: Path | None) -> Certificates:
    try:
        contents = certificate.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca else None
        context = _context(certificate, key, client_ca)
        if stat.S_IMODE(key.stat().st_mode) & _FOR_EVERYBODY:
            _log.warning("everybody on this host may read the key %s, and pose as this process; chmod 600", key)
    except OSError as error:
        flag = {key: "--tls-key", certificate: "--tls-cert"}.get(Path(error.filename), "--tls-client-ca")
        raise InvalidFile(f"it can't be read: {error.strerror}", place=f"{flag} {error.filename!r}") from error
    _warn_of_expiry(certificate)
    return Certificates(*contents, context)


def _context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return OpenSSL's context. Raises InvalidFile for files with which all clients would only be refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_encrypted)
    except ssl.SSLError as error:
        what = f"{certificate} and {key} are no PEM files of a certificate and of its key: {error.reason or error}"
        raise InvalidFile(what, place="--tls-cert, --tls-key") from error
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            what = f"{client_ca} is no PEM file of certificates: {error.reason or error}"
            raise InvalidFile(what, place="--tls-client-ca") from error
    return context


def _warn_of_expiry(certificate: Path) -> None:
    """Log a warning if the certificate has expired, or will soon."""
    expires_at, now = expiry_of(certificate), datetime.now(timezone.utc)
    if expires_at is not None and expires_at - now < _SOON:
        tense = "expired" if expires_at < now else "expires"
        how = "renew it: `nnrt-device keys server FOLDER --host NAME --replace`"
        _log.warning("the certificate %s (--tls-cert) %s on %s; %s", certificate, tense, f"{expires_at:%Y-%m-%d}", how)


def _refuse_encrypted() -> str:
    """Refuse an encrypted key, for which OpenSSL would ask at the terminal."""
    raise InvalidFile("the key is encrypted; give one without a passphrase", place="--tls-key")
