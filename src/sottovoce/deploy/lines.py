"""What a server and its clients tell each other before they meet: one line of text each, to be sent by mail.

    sottovoce-server ADDRESS AUTHORITY [SCHEMA]     where the server is, the authority that signed its certificate (DER
                                                    in base64) and, if there is one, the digest of the study's schema
    sottovoce-node NAME KEY                         a client's name and its public key (the middle of OpenSSH's form)

Nothing in them is secret, but who can change one on its way can stand in for its sender: whoever receives a line
compares `fingerprint` with the sender by telephone.

What a client keeps of it is the table [server] of its own file. Paths are seen from the file's own folder. Behind a
gate the account that speaks with the server has a file of its own, with this table alone.

    address      "server.example:8700"
    certificate  of the authority that signed the server's, in PEM: "ca.crt"
    key          the private key by which this client is known there: "cleveland.key"
"""

import base64
import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from sottovoce.core import check
from sottovoce.deploy.wire import is_hex
from sottovoce.experiment import whole_files
from sottovoce.experiment.tables import from_table, read_tables

SERVER, NODE = "sottovoce-server", "sottovoce-node"
TABLES = ("node", "server", "data", "schema", "limits", "sums", "products", "predict")  # of a client's own file
_KIND_OF_KEY = b"ecdsa-sha2-nistp384"
_LONGEST = 2**14  # characters
_WHOSE = {
    SERVER: "a server's line, which `sottovoce server init` prints",
    NODE: "a node's line, which `sottovoce node init` prints",
}


@dataclass(frozen=True)
class ServerLine:
    """Where a server is, and how to know that it is the one."""

    address: str
    authority: bytes  # a certificate, DER
    schema: str = ""

    @classmethod
    def read(cls, text: str) -> "ServerLine":
        """From the line itself, or from a file that holds it."""
        address, authority, schema = (*_parts(text, SERVER, 2, 3), "")[:3]
        host_and_port(address)
        check.require(not schema or is_hex(schema), "line", _cut(SERVER))
        try:
            der = base64.b64decode(authority, validate=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about certificates that are odd: no such one passes the next line
                certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(certificate)  # its own signature: a letter that changed is noticed
        except Exception:  # of many kinds
            raise check.InvalidInput(f"line: {_cut(SERVER)}") from None
        return cls(address, der, schema)

    def __str__(self) -> str:
        return " ".join([SERVER, self.address, base64.b64encode(self.authority).decode(), self.schema]).strip()

    @property
    def fingerprint(self) -> str:
        return spelt(self.authority)

    def pem(self) -> bytes:
        """The authority's certificate as files hold it."""
        return x509.load_der_x509_certificate(self.authority).public_bytes(Encoding.PEM)


@dataclass(frozen=True)
class NodeLine:
    """A client's name and public key."""

    name: str
    key: bytes  # as in OpenSSH's form, decoded

    @classmethod
    def read(cls, text: str) -> "NodeLine":
        """From the line itself, or from a file that holds it."""
        name, key = _parts(text, NODE, 2)
        good_name(name)
        try:
            line = cls(name, base64.b64decode(key, validate=True))
            load_ssh_public_key(line.openssh())
        except Exception:  # of many kinds
            raise check.InvalidInput(f"line: {_cut(NODE)}") from None
        return line

    @classmethod
    def of(cls, name: str, openssh: bytes) -> "NodeLine":
        """Of a public key in OpenSSH's form."""
        return cls.read(f"{NODE} {name} {openssh.split()[1].decode()}")

    def __str__(self) -> str:
        return f"{NODE} {self.name} {base64.b64encode(self.key).decode()}"

    @property
    def fingerprint(self) -> str:
        return spelt(self.key)

    def openssh(self) -> bytes:
        """The public key as `ssh-keygen` writes it."""
        return _KIND_OF_KEY + b" " + base64.b64encode(self.key)


def as_pem(openssh: bytes) -> bytes:
    """A public key in the form in which Flower keeps it."""
    return load_ssh_public_key(openssh).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def good_name(name: str, who: str = "node") -> str:
    """A client's name: it names files too."""
    plain = name.isascii() and 0 < len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum()
    check.require(plain, who, "a name must be at most 64 letters, digits, '-' and '_'", name)
    return name


def host_and_port(address: str, who: str = "address", rule: str = "") -> tuple[str, int]:
    """The two parts of HOST:PORT; of an IPv6 address without its brackets."""
    host, _, port = address.rpartition(":")
    good = host != "" and "/" not in host and port.isdigit() and 0 < int(port) < 2**16
    check.require(good, who, rule or "must be HOST:PORT, such as server.example:8700", address)
    return host.strip("[]"), int(port)


def spelt(content: bytes) -> str:
    """A digest to read out over the telephone."""
    digest = hashlib.sha256(content).hexdigest()[:24]
    return " ".join(digest[place : place + 4] for place in range(0, 24, 4))


def _parts(text: str, kind: str, *counts: int) -> list[str]:
    """The words of a line after its first one, which says what kind it is; `counts`: how many there may be."""
    text = text.strip()
    if not text.startswith("sottovoce-") and text and len(text) < 4096 and Path(text).expanduser().is_file():
        path = Path(text).expanduser()
        short = path.stat().st_size <= _LONGEST
        check.require(short, str(path), "must hold one line of text", hint=f"Give {_WHOSE[kind]}")
        text = whole_files.read_text(path).strip()
    words = text[:_LONGEST].split()
    first_word = words[0] if words else ""
    if first_word in _WHOSE and first_word != kind:
        raise check.InvalidInput(f"line: this is {_WHOSE[first_word]}; what is needed here is {_WHOSE[kind]}")
    rule = f"must be {_WHOSE[kind]}, or a file that holds it"
    check.require(first_word == kind, "line", rule, text[:40], "Copy the whole line, from its first word on")
    check.require(len(words) - 1 in counts, "line", _cut(kind))
    return words[1:]


def _cut(kind: str) -> str:
    return f"it is not whole, or was changed on its way. Copy again, from its first word to its last, {_WHOSE[kind]}"


@dataclass(frozen=True)
class Connection:
    """Where a server is, how to know that it is the one, and the key that it knows this client by."""

    address: str
    certificate: str = "ca.crt"
    key: str = "node.key"

    def __post_init__(self) -> None:
        host_and_port(self.address, "Connection", "address must be HOST:PORT, such as server.example:8700")

    @classmethod
    def read(cls, path: Path) -> "Connection":
        """The one that a client's file names, with whole paths."""
        tables = read_tables(path, TABLES)
        hint = 'Write there: [server] address = "server.example:8700", certificate = "ca.crt", key = "cleveland.key"'
        check.require("server" in tables, path.name, "needs a table [server]", hint=hint)
        written = from_table(cls, tables["server"], f"{path.name}, [server]")
        home = path.expanduser().absolute().parent
        files = (str(home / Path(name).expanduser()) for name in (written.certificate, written.key))
        return cls(written.address, *files)
