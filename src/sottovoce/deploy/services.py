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
# A Python with compiled kernels writes memory that it then executes, so MemoryDenyWriteExecute cannot be among them.
_UNIT = """\
# cp {unit} /etc/systemd/system/ && systemctl enable --now {name}
[Unit]
Description={name}
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
WorkingDirectory={directory}
Restart=always
RestartSec=10
UMask=0077
Environment=NUMBA_CACHE_DIR=/tmp/numba {home}
MemoryMax={memory}
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={writable}
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
_COMPOSE = """\
# docker compose up --detach
services:
  {name}:
    build:
      dockerfile_inline: |
        FROM python:{python}-slim
        RUN pip install --no-cache-dir "sottovoce[flower]=={version}"
    command: {command}
    user: "{user}"
    working_dir: {folder}
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    pids_limit: 256
    mem_limit: {memory}
    restart: unless-stopped
    environment: {{HOME: /tmp, NUMBA_CACHE_DIR: /tmp/numba}}
    tmpfs: ["/tmp"]
{ports}    volumes:
{volumes}
"""


def files(
    name: str, words: Sequence[str], folder: Path, memory: str, mounts: dict[Path, bool], ports: Sequence[str] | None
) -> dict[str, str]:
    """A unit of systemd that runs `sottovoce` with these words; unless `ports` is None, also a file of Docker
    Compose.

    `mounts`: folder or file -> whether it is written, which is so of one.
    """
    (writable,) = (path for path, written in mounts.items() if written)
    program = Path(sys.executable).with_name("sottovoce")
    unit = _UNIT.format(
        unit=f"{name}.service",
        name=name,
        user=getpass.getuser(),
        command=" ".join(_quoted(word) for word in (str(program), *words)),
        directory=str(folder).replace("%", "%%"),  # the rest of the line: no quotation marks here
        home=_quoted(f"HOME={folder}"),
        memory=memory,
        writable=_quoted(str(writable)),
    )
    if ports is None:
        return {f"{name}.service": unit}
    volumes = [f"      - {json.dumps(f'{path}:{path}' + ('' if new else ':ro'))}" for path, new in mounts.items()]
    listed = "".join(f'      - "{port}"\n' for port in ports)
    compose = _COMPOSE.format(
        name=name,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        version=metadata.version("sottovoce"),
        command=json.dumps(["sottovoce", *words]),
        user=os.getuid(),
        folder=json.dumps(str(folder)),
        memory=memory.lower(),
        ports=f"    ports:\n{listed}" if ports else "",
        volumes="\n".join(volumes),
    )
    return {f"{name}.service": unit, "compose.yaml": compose}


def _quoted(word: str) -> str:
    """One word of a unit: '%' stands for itself, and a blank does not end it."""
    word = word.replace("%", "%%").replace("$", "$$")
    return word if word.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f'"{word}"'
