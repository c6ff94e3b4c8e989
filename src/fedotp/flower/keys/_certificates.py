"""The authority of a federation, its certificates, and sites' signatures: elliptic-curve keys, X.509."""

import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedotp._files import read_regular
from fedotp.errors import FedotpError

PrivateKey = ec.EllipticCurvePrivateKey

AUTHORITY_DAYS = 3653  # ten years
SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""A site's name."""
LOOPBACK = ("localhost", "127.0.0.1")  # for connections of the server process to itself
_SLACK = timedelta(days=1)  # valid from yesterday, because sites' clocks may be slow
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_HOST = 253
_HOW = ec.ECDSA(hashes.SHA384())  # signature algorithm of sites
_MOST_BYTES = 8 << 20  # of a key, or of the certificates of a thousand sites over some years
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
    """Make a self-signed certificate of an authority that can sign certificates but no further authorities."""
    name = _name("fedotp authority")
    return (
        _certificate(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )


def sign(
    name: str,
    key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    authority_key: PrivateKey,
    *,
    hosts: Sequence[str] = (),
    days: int,
    now: datetime,
) -> x509.Certificate:
    """Certify that `key` belongs to the site `name`, or with `hosts` to the server at these hosts and on loopback."""
    use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _certificate(_name(name), authority.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if hosts:
        names = [_alternative_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA384())


def sign_revoked(
    before: Iterable[x509.RevokedCertificate],
    serials: Iterable[int],
    authority: x509.Certificate,
    authority_key: PrivateKey,
    now: datetime,
) -> x509.CertificateRevocationList:
    """Make the list of revoked certificates: those in the list `before`, and those with `serials`."""
    new = (x509.RevokedCertificateBuilder().serial_number(each).revocation_date(now).build() for each in serials)
    revoked = {each.serial_number: each for each in (*new, *before)}
    builder = x509.CertificateRevocationListBuilder(
        authority.subject, now, authority.not_valid_after_utc, [], list(revoked.values())
    )
    return (
        builder.add_extension(x509.CRLNumber(len(revoked)), critical=False)  # a certificate never leaves the list
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )


def request_certificate(name: str, key: PrivateKey) -> bytes:
    """Make a certificate request (PKCS#10) in PEM, signed with `key`."""
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA384())
    return request.public_bytes(serialization.Encoding.PEM)


def load_request(path: Path) -> tuple[str, ec.EllipticCurvePublicKey]:
    """Return the name and the key of the certificate request at `path`; its signature is by this key."""
    content = read_file(path, "make it with `fedotp keys request`")
    try:
        request = x509.load_pem_x509_csr(content)
        key, is_signed = request.public_key(), request.is_signature_valid
    except _DAMAGED:
        raise FedotpError(f"{path} is not a certificate request in PEM; make it with `fedotp keys request`") from None
    if not is_signed:
        raise FedotpError(f"{path}: its signature is invalid; copy it again")
    if not is_known_curve(key):
        raise FedotpError(f"{path}: its key must be on the curve P-384; make it with `fedotp keys request`")
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return common_name(request, path), key


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
        raise FedotpError("the server's certificate contains no host; renew it: fedotp keys renew FOLDER --server HOST")
    return [str(name.value) for name in names]


def check_pair(certificate: x509.Certificate, key: PrivateKey, path: Path) -> None:
    """Raise FedotpError if the certificate at `path` is not for `key`."""
    if certificate.public_key() != key.public_key():
        raise FedotpError(f"{path} does not match {path.stem}.key; copy the whole folder again")


def check_issuer(certificate: x509.Certificate, authority: x509.Certificate, path: Path) -> None:
    """Raise FedotpError if the certificate in the file `path` is not signed by the authority."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        raise FedotpError(f"{path} is not signed by ca.crt; copy the whole folder again") from None


def check_dates(certificate: x509.Certificate, path: Path, now: datetime, *, cure: str) -> None:
    """Raise FedotpError if a certificate is not valid now."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise FedotpError(f"{path} expired on {end:%Y-%m-%d}; {cure}")
    if now < begin:
        raise FedotpError(f"{path} is valid from {begin:%Y-%m-%d}, today is {now:%Y-%m-%d}: check this machine's clock")


def common_name(of: x509.Certificate | x509.CertificateSigningRequest, path: Path) -> str:
    """Return the only name in a certificate or a request in the file `path`."""
    names = [str(each.value) for each in of.subject]
    if len(names) != 1 or not SITE.fullmatch(names[0]):
        raise FedotpError(f"{path}: {names} is not the name of one site; make it with `fedotp keys request`")
    return names[0]


def public_text(key: object) -> str:
    """Return a public key in OpenSSH format."""
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def is_known_curve(key: object) -> bool:
    """True for a public key of the kind that `new_key` makes."""
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)


def read_file(path: Path, origin: str = "copy the whole folder again") -> bytes:
    """Read a regular file; `origin` is the advice in the error if it is missing."""
    try:
        return read_regular(path, _MOST_BYTES)
    except FileNotFoundError:
        raise FedotpError(f"{path.parent} has no {path.name}; {origin}") from None
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error


def load_certificate(path: Path) -> x509.Certificate:
    """Read the first certificate in a file in PEM."""
    return load_certificates(path, least=1)[0]


def load_certificates(path: Path, *, least: int = 0) -> list[x509.Certificate]:
    """Read the certificates in a file in PEM, which may contain none."""
    content = read_file(path)
    try:
        certificates = x509.load_pem_x509_certificates(content) if content else []
        for each in certificates:
            each.public_key()  # these are parsed only on access
            _ = each.subject, each.extensions, each.not_valid_before_utc, each.not_valid_after_utc
    except _DAMAGED:
        certificates = []
    if len(certificates) != content.count(b"-----BEGIN") or len(certificates) < max(least, bool(content)):  # cut off
        raise FedotpError(f"{path} is not a certificate in PEM; copy it again")
    return certificates


def load_revoked(path: Path, authority: x509.Certificate) -> list[x509.RevokedCertificate]:
    """Read a list of revoked certificates, which `authority` has signed."""
    content = read_file(path)
    try:
        listed = x509.load_pem_x509_crl(content)
        key = authority.public_key()
        if isinstance(key, ec.EllipticCurvePublicKey) and listed.is_signature_valid(key):
            return list(listed)
    except _DAMAGED:
        raise FedotpError(f"{path} is not a list of revoked certificates in PEM; copy it again") from None
    raise FedotpError(f"{path} is not signed by ca.crt; copy it again")


def load_key(path: Path) -> PrivateKey:
    """Read a private key in PEM (authority, server) or in OpenSSH format (site).

    Like ssh, refuse one that others can read, except the group of another user's (root's).
    """
    content = read_file(path)
    if os.name == "posix":
        status = path.stat()
        forbidden = 0o077 if status.st_uid == os.getuid() else 0o007
        if stat.S_IMODE(status.st_mode) & forbidden:
            raise FedotpError(f"permissions of the private key {path} are too open; run: chmod 600 '{path}'")
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
        self.peers = peers

    @property
    def public(self) -> str:
        """The public key in OpenSSH format; "" without key."""
        return "" if self._key is None else public_text(load_key(self._key).public_key())

    def sign(self, statement: bytes) -> bytes:
        """Sign with ECDSA on P-384 with SHA-384, like the site's requests."""
        return b"" if self._key is None else load_key(self._key).sign(statement, _HOW)

    def check(self, name: str, statement: bytes, signature: bytes) -> str:
        """Return the public key of the site `name`; raise FedotpError if a signature was not made with it."""
        if self.peers is None:
            return ""
        if (key := self.peers.get(name)) is None:
            raise FedotpError(f"no key of site {name!r} is accepted; in a secure sum, all sites need the new peers.crt")
        try:
            public = serialization.load_ssh_public_key(key.encode())
            if not isinstance(public, ec.EllipticCurvePublicKey):
                raise InvalidSignature
            public.verify(signature, statement, _HOW)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            raise FedotpError(f"invalid signature of site {name!r}") from None
        return key


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
