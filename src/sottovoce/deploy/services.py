"""Files with which an operating system keeps a server or a node running, with as few rights as it needs.

Nothing here is installed: they are written beside what they start, and the docs say where to copy them.
"""

import getpass
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

NO_FLOWER = "Flower is not installed. Install it with: pip install 'sottovoce[flower]'"


def files(
    name: str, words: Sequence[str], folder: Path, memory: str, mounts: dict[Path, bool], ports: Sequence[str] | None
) -> dict[str, str]:
    """A unit of systemd that runs `sottovoce` with these words; unless `ports` is None, also a file of Docker
    Compose.

    `mounts`: folder or file -> whether it is written, which is so of one.
    """
    (writable,) = (path for path, written in mounts.items() if written)
    made = {f"{name}.service": _unit(name, words, folder, memory, writable)}
    return made if ports is None else made | {"compose.yaml": _compose(name, words, folder, memory, mounts, ports)}


def _unit(name: str, words: Sequence[str], folder: Path, memory: str, writable: Path) -> str:
    """The unit. Compiled kernels write memory that they then execute, so it has no MemoryDenyWriteExecute."""
    command = " ".join(map(_quoted, (str(Path(sys.executable).with_name("sottovoce")), *words)))
    directory = str(folder).replace("%", "%%")  # the rest of the line: no quotation marks there
    return f"""\
# cp {name}.service /etc/systemd/system/ && systemctl enable --now {name}
[Unit]
Description={name}
After=network-online.target
Wants=network-online.target

[Service]
User={getpass.getuser()}
ExecStart={command}
WorkingDirectory={directory}
Restart=always
RestartSec=10
UMask=0077
Environment=NUMBA_CACHE_DIR=/tmp/numba {_quoted(f"HOME={folder}")}
MemoryMax={memory}
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={_quoted(str(writable))}
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def _compose(
    name: str, words: Sequence[str], folder: Path, memory: str, mounts: dict[Path, bool], ports: Sequence[str]
) -> str:
    listed = "".join(f'      - "{port}"\n' for port in ports)
    listed = f"    ports:\n{listed}" if ports else ""
    paths = (json.dumps(f"{path}:{path}" + ("" if written else ":ro")) for path, written in mounts.items())
    volumes = "\n".join(f"      - {path}" for path in paths)
    return f"""\
# docker compose up --detach
services:
  {name}:
    build:
      dockerfile_inline: |
        FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim
        RUN pip install --no-cache-dir "sottovoce[flower]=={metadata.version("sottovoce")}"
    command: {json.dumps(["sottovoce", *words])}
    user: "{os.getuid()}"
    working_dir: {json.dumps(str(folder))}
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    pids_limit: 256
    mem_limit: {memory.lower()}
    restart: unless-stopped
    environment: {{HOME: /tmp, NUMBA_CACHE_DIR: /tmp/numba}}
    tmpfs: ["/tmp"]
{listed}    volumes:
{volumes}
"""


def _quoted(word: str) -> str:
    """One word of a unit: '%' stands for itself, and a blank does not end it."""
    word = word.replace("%", "%%").replace("$", "$$")
    return word if word.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f'"{word}"'
