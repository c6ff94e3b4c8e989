"""The authority of a federation, the server certificate, and sites' signatures: elliptic-curve keys, X.509."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedotp.errors import FedotpError

PrivateKey = ec.EllipticCurvePrivateKey

AUTHORITY_DAYS = 3653  # ten years
LOOPBACK = ("localhost", "127.0.0.1")  # for connections of the server process to itself
_SLACK = timedelta(days=1)  # valid from yesterday, because sites' clocks may be slow
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_HOST = 253
_HOW = ec.ECDSA(hashes.SHA384())  # signature algorithm of sites
_DAMAGED = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def new_key() -> PrivateKey:
    """Make a P-384 key."""
    return ec.generate_private_key(ec.SECP384R1())


def sign_authority(key: PrivateKey, now: datetime) -> x509.Certificate:
    """Make a self-signed certificate of an authority that can sign servers but no further authorities."""
    name = _name("fedotp authority")
    return (
        _certificate(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )


def sign_server(
    key: ec.EllipticCurvePublicKey,
    hosts: Sequence[str],
    authority: x509.Certificate,
    authority_key: PrivateKey,
    *,
    days: int,
    now: datetime,
) -> x509.Certificate:
    """Certify that `key` is the server's, under the names and addresses `hosts` and on loopback."""
    names: list[x509.GeneralName] = [_alternative_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _certificate(_name("fedotp server"), authority.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA384())
    )


def check_host(host: str) -> str:
    """Return the host name or IP address in the form of certificates, or raise FedotpError."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host) or len(host) > _LONGEST_HOST or re.fullmatch(r"[\d.]+", host):
            raise FedotpError(
                f"'{host}' is not a host: use a name like fl.example.org or an IP address, without a port"
            ) from None
        return host.lower()


def certified_hosts(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses of a server certificate, in the given order."""
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    if not names:
        raise FedotpError("the server's certificate contains no host; sign a new one: fedotp keys renew --server")
    return [str(name.value) for name in names]


def check_pair(certificate: x509.Certificate, key: PrivateKey, authority: x509.Certificate, folder: Path) -> None:
    """Raise FedotpError if a server certificate does not match its key or the authority."""
    if certificate.public_key() != key.public_key():
        raise FedotpError(f"{folder}: server.crt does not match server.key; copy the whole folder again")
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        raise FedotpError(f"{folder}: server.crt is not signed by ca.crt; copy the whole folder again") from None


def check_dates(certificate: x509.Certificate, path: Path, now: datetime, *, cure: str) -> None:
    """Raise FedotpError if a certificate is not valid now."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise FedotpError(f"{path} expired on {end:%Y-%m-%d}; {cure}")
    if now < begin:
        raise FedotpError(f"{path} is valid from {begin:%Y-%m-%d}, today is {now:%Y-%m-%d}: check this machine's clock")


def load_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.public_key()  # these are parsed only on access
        _ = certificate.extensions, certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except _DAMAGED:
        raise FedotpError(f"{path} is not a certificate in PEM; copy it again") from None
    return certificate


def load_key(path: Path) -> PrivateKey:
    """Read a private key in PEM (authority, server) or in OpenSSH format (site)."""
    content = path.read_bytes()
    ssh = b"OPENSSH" in content.partition(b"\n")[0]
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    try:
        key = load(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, NotImplementedError):
        key = None
    if not isinstance(key, PrivateKey):
        raise FedotpError(f"{path} is not an elliptic-curve private key without passphrase; copy it again")
    return key


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the fingerprint that `openssl x509 -noout -fingerprint -sha256` prints."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


class KeyIdentity:
    """Signs with the private key in a file, and checks signatures of others with their public keys."""

    def __init__(self, key: Path | None, peers: Mapping[str, str] | None) -> None:
        """Without `key`, signatures are empty; without `peers`, public keys by name, all signatures are accepted."""
        self._key = key
        self._peers = peers

    def sign(self, statement: bytes) -> bytes:
        """Sign with ECDSA on P-384 with SHA-384, like the site's requests."""
        return b"" if self._key is None else load_key(self._key).sign(statement, _HOW)

    def check(self, name: str, statement: bytes, signature: bytes) -> None:
        """Raise FedotpError if a signature was not made with the key of the site `name`."""
        if self._peers is None:
            return
        if name not in self._peers:
            raise FedotpError(f"unknown key of site {name!r}; ask the coordinator for a new peers.toml")
        public = serialization.load_ssh_public_key(self._peers[name].encode())
        try:
            assert isinstance(public, ec.EllipticCurvePublicKey)  # checked by read_sites
            public.verify(signature, statement, _HOW)
        except InvalidSignature:
            raise FedotpError(f"invalid signature of site {name!r}") from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_name(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
