"""Certificate authority and certificates of a fleet. Needs the package `cryptography` (`nnrt[keys]`)."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nnrt_hdi.errors import InvalidFile, InvalidParameter, InvalidPath
from nnrt_hdi.files.new_file import write_new

CA, CA_KEY = "ca.pem", "ca-key.pem"
_KEY_END = "-key"
_CA_DAYS = 3650
# Certificates are valid from before now, because clocks in a fleet differ.
_SLACK = timedelta(hours=1)


class Authority:
    """Certificate authority, whose certificate and key lie in a folder."""

    def __init__(self, folder: Path) -> None:
        """Read the folder's authority, or make one if it has none. Raises InvalidFile if it can't be read."""
        self.folder = folder
        self.is_new = not ((folder / CA).exists() or (folder / CA_KEY).exists())
        if self.is_new:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._certificate = _built(_name(f"nnrt fleet {secrets.token_hex(4)}"), self._key, _CA_DAYS, None, ())
            write_new(folder / CA_KEY, _key_pem(self._key), is_private=True)
            write_new(folder / CA, _pem(self._certificate), is_private=False)
            return
        try:
            self._certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
        except (OSError, ValueError, TypeError, AssertionError) as error:
            raise InvalidFile(
                f"{CA} and {CA_KEY} are no authority that was made here: {error}", place=str(folder)
            ) from error

    def issue_server(self, name: str, hosts: Sequence[str], days: int, replaces: bool = False) -> tuple[Path, Path]:
        """Write the certificate and key of a daemon that clients reach by `hosts`, and return both paths.

        `hosts` are host names and addresses. Raises InvalidParameter for a name that collides with other files, and
        InvalidPath if the files exist and `replaces` is false.
        """
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._issue(name, days, ExtendedKeyUsageOID.SERVER_AUTH, (names,), replaces)

    def issue_client(self, name: str, days: int, replaces: bool = False) -> tuple[Path, Path]:
        """Write the certificate and key of a client, and return both paths. Raises as `issue_server`."""
        return self._issue(name, days, ExtendedKeyUsageOID.CLIENT_AUTH, (), replaces)

    def _issue(
        self,
        name: str,
        days: int,
        usage: x509.ObjectIdentifier,
        others: Sequence[x509.ExtensionType],
        replaces: bool,
    ) -> tuple[Path, Path]:
        if f"{name}.pem" in (CA, CA_KEY) or name.endswith(_KEY_END):  # Even with `replaces`.
            raise InvalidParameter(f"{name!r} would name the file of an authority or of a key; use another name")
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = (x509.ExtendedKeyUsage([usage]), *others)
        certificate = _built(_name(name), key, days, (self._certificate, self._key), extensions)
        certificate_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}{_KEY_END}.pem"
        if certificate_file.exists() and not replaces:  # Check before writing the key.
            raise InvalidPath("it is there already; move it away, or give --replace", place=str(certificate_file))
        write_new(key_file, _key_pem(key), is_private=True, replaces=replaces)
        write_new(certificate_file, _pem(certificate), is_private=False, replaces=replaces)
        return certificate_file, key_file


def _built(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    extensions: Sequence[x509.ExtensionType],
) -> x509.Certificate:
    """Return a signed certificate; without an issuer a self-signed one of an authority."""
    is_authority = issuer is None
    issuer_name, issuer_key = (issuer[0].subject, issuer[1]) if issuer else (subject, key)
    now = datetime.now(timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
