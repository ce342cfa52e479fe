"""What the machines of a fleet know each other by: an authority of their own, and a certificate that it signed."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from tilewright_agent.fleet import SCHEME, FleetError

AUTHORITY = "ca.pem"
MEMBER = "fleet.pem"  # certificate and key in one file
DAYS = 825


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """Write the certificate of a new authority, and one with its key that the authority signed, and return both paths.

    The key of the authority is thrown away: who is to join gets a copy of the folder; to shut one out, make new ones.
    Raises FleetError where there are certificates already, or the folder cannot be written.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise FleetError("certificates need the package cryptography: pip install 'tilewright[fleet]'") from None
    authority, member = folder / AUTHORITY, folder / MEMBER
    if authority.exists() or member.exists():
        raise FleetError(f"{folder} has certificates already; remove them first, and then renew them on all machines")

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)

    def signed(subject: str, public: Any, by: Any, *, is_authority: bool) -> Any:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("tilewright fleet authority"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
            .sign(by, hashes.SHA256())
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = signed("tilewright fleet authority", authority_key.public_key(), authority_key, is_authority=True)
    leaf = signed("tilewright fleet", key.public_key(), authority_key, is_authority=False)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(authority, root.public_bytes(pem), 0o644)
        _write(member, leaf.public_bytes(pem) + secret, 0o600)
    except OSError as error:
        raise FleetError(f"cannot write certificates to {folder}: {error.strerror or error}") from None
    return authority, member


def security(folder: str | Path) -> Any:
    """The `distributed.Security` of a folder of certificates. Raises FleetError."""
    where = Path(folder).expanduser()
    authority, member = where / AUTHORITY, where / MEMBER
    for path in (authority, member):
        if not path.is_file():
            raise FleetError(
                f"there is no {path}: `tilewright fleet certificates {where}` makes it, or copy it from there"
            )
    try:
        from distributed.security import Security
    except ImportError:
        raise FleetError("a fleet needs the package distributed: pip install 'tilewright[fleet]'") from None
    both: dict[str, Any] = {}
    for role in ("client", "scheduler", "worker"):
        both |= {f"tls_{role}_cert": str(member), f"tls_{role}_key": str(member)}
    return Security(tls_ca_file=str(authority), require_encryption=True, **both)


def checked_address(address: str) -> str:
    """The address of a scheduler. Raises FleetError unless it is one with TLS."""
    if not address.startswith(SCHEME) or ":" not in address[len(SCHEME) :]:
        raise FleetError(f"{address!r} is no address of a fleet: write {SCHEME}HOST:PORT; nothing is sent without TLS")
    return address


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
