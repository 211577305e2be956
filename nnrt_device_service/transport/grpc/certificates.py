"""TLS of the daemon's addresses: its certificate, and the authority of its clients' certificates."""

import logging
import ssl
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc

from nnrt_device_service.settings import Settings
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.certificate import expiry_of
from nnrt_hdi.errors import InvalidFile, InvalidParameter

_log = logging.getLogger(__name__)

_FOR_EVERYBODY = stat.S_IROTH | stat.S_IWOTH
# Before a certificate expires the log says so.
_SOON = timedelta(days=7)


def server_credentials(settings: Settings) -> Any:
    """Return gRPC's credentials, which are reloaded when their files change, or None if the settings ask for no TLS.

    Raises InvalidParameter if a setting is missing, and InvalidFile for a file that can't be used.
    """
    if not (settings.tls_cert or settings.tls_key or settings.tls_client_ca):
        return None
    if not (settings.tls_cert and settings.tls_key):
        given = f"--tls-cert is {settings.tls_cert!r} and --tls-key {settings.tls_key!r}"
        raise InvalidParameter(f"{given}; TLS needs both", place="TLS")
    certificate, key = Path(settings.tls_cert), Path(settings.tls_key)
    client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None

    def read() -> Any:
        try:
            pairs = [(key.read_bytes(), certificate.read_bytes())]
            authority = client_ca.read_bytes() if client_ca else None
            _require_sound(certificate, key, client_ca)
            if stat.S_IMODE(key.stat().st_mode) & _FOR_EVERYBODY:
                _log.warning("everybody on this host may read the key %s, and pose as this daemon; chmod 600", key)
        except OSError as error:
            flag = {key: "--tls-key", certificate: "--tls-cert"}.get(Path(error.filename), "--tls-client-ca")
            raise InvalidFile(f"it can't be read: {error.strerror}", place=f"{flag} {error.filename!r}") from error
        _warn_of_expiry(certificate)
        return grpc.ssl_server_certificate_configuration(pairs, authority)

    files = WatchedFiles([certificate, key, *([client_ca] if client_ca else [])], read)
    return grpc.dynamic_ssl_server_credentials(files.content(), files.content, client_ca is not None)


def _require_sound(certificate: Path, key: Path, client_ca: Path | None) -> None:
    """Raise InvalidFile for files that gRPC can't use: with such files gRPC would only refuse all clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_encrypted)
    except ssl.SSLError as error:
        what = f"{certificate} and {key} are no PEM files of a certificate and of its key: {error.reason or error}"
        raise InvalidFile(what, place="--tls-cert, --tls-key") from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except ssl.SSLError as error:
        what = f"{client_ca} is no PEM file of certificates: {error.reason or error}"
        raise InvalidFile(what, place="--tls-client-ca") from error


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
