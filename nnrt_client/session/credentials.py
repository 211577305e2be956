"""Credentials: the client's certificate, token and ticket, and the check of the daemon's certificate."""

import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc

from nnrt_client.session.address import Address
from nnrt_client.settings import TLS_CA_VARIABLE, Settings
from nnrt_hdi.certificate import expiry_of
from nnrt_hdi.errors import ConnectionFailed, InvalidFile, InvalidPath, OperationForbidden
from nnrt_hdi.limits import TICKET_BYTES, TICKET_SUFFIX
from nnrt_hdi.wire import TICKET_METADATA

ResultT = TypeVar("ResultT")
Metadata = tuple[tuple[str, str | bytes], ...]

_UNIX = "unix:"
# Limit of certificate and token files. A file of all public authorities has a quarter of that.
_MOST_FILE_BYTES = 1 << 20
_RECEIVED_BYTES = 1 << 14
_TOKEN = rb"[A-Za-z0-9._~+/-]+=*"  # RFC 6750
# OpenSSL's codes for certificates that it refuses (X509_V_ERR_...).
_NOT_YET_VALID, _EXPIRED, _HOST_MISMATCH, _ADDRESS_MISMATCH = 9, 10, 62, 64


def speaks_tls(address: str, settings: Settings) -> bool:
    """Return whether a client uses TLS at this address.

    It uses no TLS on a Unix socket, where the kernel identifies the peer.
    """
    return bool(settings.tls_ca) and not address.startswith(_UNIX)


def channel_credentials(settings: Settings) -> Any:
    """Read the settings' files and make gRPC's credentials of them.

    Raises InvalidPath or InvalidFile.
    """
    _client_context(settings)  # Checks the files: for invalid ones gRPC would report only that no daemon answers.
    own = (settings.tls_key, settings.tls_cert) if settings.tls_cert else ()
    return grpc.ssl_channel_credentials(_read("tls_ca", settings.tls_ca), *(_read("tls_cert", path) for path in own))


def name_options(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return gRPC's option for the host name in the daemon's certificate, if it differs from the address's host."""
    return (("grpc.ssl_target_name_override", settings.tls_server_name),) if settings.tls_server_name else ()


def token_metadata(address: str, settings: Settings) -> Metadata:
    """Return gRPC metadata with the client's token; empty if the settings have no token file.

    Raises OperationForbidden if the token would be sent over a network without TLS, InvalidPath or InvalidFile for the
    file.
    """
    if not settings.token_file:
        return ()
    if not speaks_tls(address, settings) and not Address(address).is_local:
        raise OperationForbidden(
            f"the token would travel there in plain text; set tls_ca ({TLS_CA_VARIABLE}), or no token_file",
            place=f"daemon at {address}",
        )
    token = _read("token_file", settings.token_file).strip()
    if not re.fullmatch(_TOKEN, token):
        what = f"token_file {settings.token_file!r} holds no token, which is one line of letters, digits and -._~+/="
        raise InvalidFile(what, place="Settings")
    return (("authorization", f"Bearer {token.decode()}"),)


def ticket_metadata(address: str, timeout_s: float) -> Metadata:
    """Fetch a ticket from the daemon, and return it as gRPC metadata.

    A daemon that listens on a Unix socket issues tickets on a second one. It learns the client's user from that
    socket's peer credentials (SO_PEERCRED), and from the ticket in the metadata that an RPC is this client's. Raises
    ConnectionFailed if no ticket comes in time. Returns no metadata if there is no such socket.
    """
    if not address.startswith(_UNIX) or not hasattr(socket, "SO_PEERCRED"):
        return ()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(address.removeprefix(_UNIX) + TICKET_SUFFIX)
            ticket = connection.recv(TICKET_BYTES, socket.MSG_WAITALL)
        except (TimeoutError, BlockingIOError) as error:  # The daemon is stopped, or too many clients ask.
            raise ConnectionFailed(f"no answer within {timeout_s:g} s", place=f"daemon at {address}") from error
        except OSError:  # For example, no daemon issues tickets there.
            return ()
    return ((TICKET_METADATA, ticket),) if len(ticket) == TICKET_BYTES else ()


@dataclass(frozen=True, slots=True)
class TlsGreeting:
    """TLS version of a daemon, host names in its certificate, and expiry of the certificate (seconds since 1970)."""

    version: str
    hosts: tuple[str, ...]
    expires_at: float


def tls_greeting(address: str, settings: Settings) -> TlsGreeting:
    """Make a TLS handshake with the daemon at HOST:PORT and return its result.

    Raises OSError or ssl.SSLError if the daemon doesn't speak TLS or the settings don't trust its certificate,
    InvalidPath or InvalidFile for the settings' files.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.create_connection((host, int(port)), settings.connect_timeout_s) as connection:
        return _Handshake(connection, _client_context(settings), settings.tls_server_name or host).greeting


def diagnose_handshake(address: str, settings: Settings) -> str:
    """Return why a daemon that can be reached refuses this client, or an empty text if no reason is found.

    For most of these mistakes gRPC reports only that no daemon answers.
    """
    host, _, port = address.rpartition(":")
    if address.startswith(_UNIX):
        daemon = address.removesuffix(TICKET_SUFFIX)
        return (
            ""
            if daemon == address
            else f"clients say there who they are; their daemon listens on {daemon}, so use that"
        )
    if not port.isdecimal():
        return ""
    host = host.strip("[]")
    # A busy daemon may close the connection once. A daemon that refuses this client closes it each time.
    return _try_handshake(host, int(port), settings) and _try_handshake(host, int(port), settings)


def _try_handshake(host: str, port: int, settings: Settings) -> str:
    """Make a handshake with the settings' credentials. Return what is wrong, or an empty text."""
    try:
        with socket.create_connection((host, port), settings.verdict_timeout_s) as connection:
            if speaks_tls(f"{host}:{port}", settings):
                return _diagnose_tls(connection, host, settings)
            return _diagnose_plain(connection)
    except OSError:
        return ""


def _diagnose_plain(connection: socket.socket) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _Handshake(connection, context, None)  # Raises if the daemon doesn't speak TLS.
    return (
        "it speaks TLS, and this client doesn't; set tls_ca to the certificate of its authority (Settings,"
        f" {TLS_CA_VARIABLE} or --tls-ca)"
    )


def _diagnose_tls(connection: socket.socket, host: str, settings: Settings) -> str:
    context, host = _client_context(settings), settings.tls_server_name or host
    try:
        shaken = _Handshake(connection, context, host)
        return "" if shaken.is_greeted() else _explain_refusal(settings)
    except ssl.SSLCertVerificationError as error:
        return _explain_distrust(error, host, settings)
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return "it speaks no TLS, and tls_ca is set; give the daemon --tls-cert and --tls-key, or set no tls_ca"
        return f"the TLS handshake fails: {error.reason or error}"


class _Handshake:
    """TLS handshake on a connection that the caller closes.

    `SSLContext.wrap_socket` would take the connection over, and leak it if the peer resets it too soon.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str | None) -> None:
        """Make the handshake. Raise ssl.SSLError or OSError if it fails."""
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._complete(self._tls.do_handshake)

    @property
    def greeting(self) -> TlsGreeting:
        """Result of the handshake, from the daemon's verified certificate."""
        certificate: Any = self._tls.getpeercert()
        hosts = tuple(host for _, host in certificate.get("subjectAltName", ()))
        return TlsGreeting(self._tls.version() or "TLS", hosts, ssl.cert_time_to_seconds(certificate["notAfter"]))

    def is_greeted(self) -> bool:
        """Return whether the daemon sends data, as an HTTP/2 server does first.

        A daemon that refuses the client's certificate closes the connection instead.
        """
        try:
            return bool(self._complete(partial(self._tls.read, 1)))
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return False

    def _complete(self, step: Callable[[], ResultT]) -> ResultT:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._connection.sendall(self._outgoing.read())
                if data := self._connection.recv(_RECEIVED_BYTES):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._connection.sendall(self._outgoing.read())
                return result


def _explain_refusal(settings: Settings) -> str:
    if not settings.tls_cert:
        return (
            "it hangs up on a client without a certificate (--tls-client-ca); set tls_cert and tls_key (Settings,"
            " NNRT_TLS_CERT and NNRT_TLS_KEY, or --tls-cert and --tls-key)"
        )
    expires_at = expiry_of(settings.tls_cert)
    if expires_at is not None and expires_at < datetime.now(timezone.utc):
        return (
            f"it doesn't take the certificate {settings.tls_cert!r} (tls_cert), which expired on {expires_at:%Y-%m-%d};"
            " have it renewed: `nnrt-device keys client FOLDER NAME --replace`"
        )
    return (
        f"it doesn't take the certificate {settings.tls_cert!r} (tls_cert): it is of another authority than the"
        " daemon's --tls-client-ca, or is none for clients; have one made: `nnrt-device keys client FOLDER NAME`"
    )


def _explain_distrust(error: ssl.SSLCertVerificationError, host: str, settings: Settings) -> str:
    said = error.verify_message
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return f"its certificate has expired or is not valid yet: {said}; renew it, and check this host's clock"
    if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        return (
            f"its certificate is not for {host!r}: {said}; use a name that is in it (tls_server_name, where the address"
            " has another), or have one made for this name"
        )
    return (
        f"its certificate is of no authority in {settings.tls_ca!r} (tls_ca): {said}; set tls_ca to that of the daemon"
    )


def _client_context(settings: Settings) -> ssl.SSLContext:
    """Make a TLS context from the settings' files. Raise InvalidPath or InvalidFile."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
    except ssl.SSLError as error:
        what = f"tls_ca {settings.tls_ca!r} holds no certificate in PEM: {error.reason or error}"
        raise InvalidFile(what, place="Settings") from error
    except OSError as error:
        raise _unreadable_error("tls_ca", settings.tls_ca, error) from error
    context.set_alpn_protocols(["h2"])
    if settings.tls_cert:
        try:
            context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: "")
        except ssl.SSLError as error:
            raise InvalidFile(
                f"tls_cert {settings.tls_cert!r} and tls_key {settings.tls_key!r} are no PEM files of a certificate and"
                f" of its key without a passphrase: {error.reason or error}",
                place="Settings",
            ) from error
        except OSError as error:
            raise _unreadable_error("tls_cert or tls_key", f"{settings.tls_cert}, {settings.tls_key}", error) from error
    return context


def _read(setting: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_FILE_BYTES)
    except OSError as error:
        raise _unreadable_error(setting, path, error) from error


def _unreadable_error(setting: str, path: str, error: OSError) -> InvalidPath:
    return InvalidPath(f"{setting} {path!r} can't be read: {error.strerror}", place="Settings")
