"""Keys and certificates for a deployment: an authority of its own, the server's certificate, a key per client."""

import ipaddress
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.core import check
from sottovoce.core.files import read_bytes
from sottovoce.deploy.lines import good_name
from sottovoce.experiment import whole_files

AUTHORITY, SERVER, SERVER_KEY = "ca.crt", "server.pem", "server.key"
Key = ec.EllipticCurvePrivateKey
MAKE_KEY = "Make one with: sottovoce node key FILE"
LOOPBACK = ("localhost", "127.0.0.1")  # where a server's own processes and its operator find it
PRIVATE = 0o600  # of a file that nobody but its owner can read
_MOST_DAYS = 20 * 366  # of a certificate


def make(folder: Path, hosts: Sequence[str], clients: Sequence[str], days: int) -> list[str]:
    """Write them into a new folder, all or none; private keys are readable by their owner alone. Returns the names.

    The certificate is for `hosts`, and for the server's own machine.
    The authority's own key is thrown away: nobody can sign another server with it. New certificate, new authority.
    """
    check.whole("certificates", days=days)
    check.require(days <= _MOST_DAYS, "certificates", f"days must be at most {_MOST_DAYS}, 20 years", days)
    for name in clients:
        good_name(name, "certificates")
        check.require(name not in ("ca", "server"), "certificates", "a client cannot have this name", name)
    check.require(len(set(clients)) == len(clients), "certificates", "clients must be distinct", list(clients))
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    files = _server_files(authority, server, list(dict.fromkeys([*hosts, *LOOPBACK])), days)
    for name in clients:
        files[f"{name}.key"], files[f"{name}.pub"] = key_pair()
    with whole_files.new_folder(folder) as made:
        for name, content in files.items():
            whole_files.write_content(made / name, content, PRIVATE)
            (made / name).chmod(PRIVATE if name.endswith(".key") else 0o644)
    return list(files)


def make_signing_key(path: Path) -> str:
    """Write a new Ed25519 key, by which a client signs what it tells other owners. Returns its public half."""
    key = Ed25519PrivateKey.generate()
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    check.require(not path.exists(), str(path), "exists; choose another name")
    with whole_files.disk(path):
        whole_files.write_content(path, key.private_bytes(*form), PRIVATE)
    return key.public_key().public_bytes_raw().hex()


def read_private(path: Path) -> bytes:
    """The bytes of a private key. Whoever else can read them can answer in its owner's name."""
    content = read_bytes(path, missing="the key cannot be read (no such file)")
    mode = stat.S_IMODE(path.stat().st_mode)
    rule = "nobody but its owner may read a private key"
    check.require(mode & 0o077 == 0, str(path), rule, f"mode {mode:o}", f"Close it with: chmod 600 {path}")
    return content


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """The key in such a file, which nobody but its owner may read."""
    content, key = read_private(path), None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(content, password=None)
    check.require(isinstance(key, Ed25519PrivateKey), str(path), "must hold an Ed25519 key in PEM", hint=MAKE_KEY)
    assert isinstance(key, Ed25519PrivateKey)
    return key


def _server_files(authority: Key, server: Key, hosts: Sequence[str], days: int) -> dict[str, bytes]:
    """The authority's certificate, and the server's certificate and key."""
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    of_authority = x509.BasicConstraints(ca=True, path_length=0), signs
    root = _certificate("sottovoce authority", authority, authority, days, *of_authority)
    of_server = (
        x509.BasicConstraints(ca=False, path_length=None),
        x509.KeyUsage(True, False, False, False, False, False, False, False, False),
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName([_host(host) for host in hosts]),
    )
    certificate = _certificate("sottovoce server", server, authority, days, *of_server)
    return {AUTHORITY: root, SERVER: certificate, SERVER_KEY: _private(server, serialization.PrivateFormat.PKCS8)}


def key_pair() -> tuple[bytes, bytes]:
    """A client's private and public key, in OpenSSH's form."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return _private(key, serialization.PrivateFormat.OpenSSH), key.public_key().public_bytes(*form)


def _private(key: Key, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate(subject: str, key: Key, signer: Key, days: int, *extensions: x509.ExtensionType) -> bytes:
    """A certificate for `key`, signed by the authority."""

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named("sottovoce authority"))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + days * day)  # clocks differ
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for extension in (*extensions, by, x509.SubjectKeyIdentifier.from_public_key(key.public_key())):
        builder = builder.add_extension(extension, isinstance(extension, x509.BasicConstraints | x509.KeyUsage))
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        plain = text.isascii() and text.replace("-", "").replace(".", "").isalnum()
        check.require(plain, "certificates", "a host must be a name or an IP address", text)
        return x509.DNSName(text)
