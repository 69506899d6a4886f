"""Certificates for the webhook: made by us, or given as files.

Our own are a new authority and a serving certificate of it each time; the authority's key is thrown away at once, so
that no other can ever be signed with it. When they are renewed, the former authority stays in the bundle: its
certificate may still be served by a replica that has not looked yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kai_solver.errors import InputError

SKEW = timedelta(hours=1)
"""Certificates hold from a while ago: clocks of API servers may be behind ours."""

RENEWED_AFTER = 2 / 3
"""Part of its life after which a certificate is renewed."""

_MOST_AUTHORITIES = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """A serving certificate, its key, and the authorities by which it and its predecessors are known; all PEM.

    ``authorities`` is empty where the trusted authorities are configured elsewhere.
    """

    certificate: bytes
    key: bytes
    authorities: bytes = b""


def make_bundle(names: Sequence[str], days: int, now_s: float, former: bytes = b"") -> Bundle:
    """A new authority and a certificate of it.

    Parameters
    ----------
    names
        DNS names by which the service is called; the first is the subject.
    days
        How long both hold.
    former
        Authorities so far, PEM; those that still hold are kept behind the new one.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one name and different keys would be taken for one another: each has a name of its own.
    issuer = _name(f"{names[0]} {x509.random_serial_number():x}"[:64])
    until = now + timedelta(days=days)
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), now - SKEW, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(names[0][:64]), issuer, key.public_key(), now - SKEW, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    kept = [old for old in _read_all(former) if old.not_valid_after_utc > now][: _MOST_AUTHORITIES - 1]
    return Bundle(_pem(certificate), _key_pem(key), b"".join(_pem(one) for one in (authority, *kept)))


def why_renew(bundle: Bundle, names: Sequence[str], now_s: float) -> str:
    """What is wrong with a bundle of our own, so that a new one is due; empty where nothing is."""
    now = datetime.fromtimestamp(now_s, UTC)
    try:
        certificate = x509.load_pem_x509_certificate(bundle.certificate)
        key = serialization.load_pem_private_key(bundle.key, None)
        authorities = x509.load_pem_x509_certificates(bundle.authorities)
        known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_pair = certificate.public_key() == key.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        return f"it cannot be read: {error}"
    if not is_pair:
        return "its key does not match"
    if not any(_signed(certificate, authority) for authority in authorities):
        return "its authority is missing"
    missing = set(names) - set(known.get_values_for_type(x509.DNSName))
    if missing:
        return f"it is not for {', '.join(sorted(missing))}"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return "it expires soon" if now > begins + RENEWED_AFTER * (ends - begins) else ""


def given_bundle(cert_file: str, key_file: str, ca_file: str = "") -> Bundle:
    """A certificate of files, as they are now.

    Raises
    ------
    InputError
        A file cannot be read, or the certificate and its key do not fit: names the file.
    """
    contents = [_content(file) for file in (cert_file, key_file, ca_file)]
    try:
        certificate = x509.load_pem_x509_certificate(contents[0])
        key = serialization.load_pem_private_key(contents[1], None)
        is_pair = certificate.public_key() == key.public_key()
    except (ValueError, TypeError) as error:
        raise InputError(f"is not PEM: {error}", file=f"{cert_file}, {key_file}", cure="Give PEM files") from error
    except UnsupportedAlgorithm as error:
        cure = "Give a key of a usual kind, for example RSA or P-256"
        raise InputError(f"is not supported: {error}", file=f"{cert_file}, {key_file}", cure=cure) from error
    if not is_pair:
        raise InputError("is not the key of the certificate", file=key_file, cure="Give both of one pair")
    return Bundle(*contents)


def _content(file: str) -> bytes:
    if not file:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", file=file, cure="Mount it, or correct its name"
        ) from error


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _read_all(text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text) if text else []
    except ValueError:
        return []


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
