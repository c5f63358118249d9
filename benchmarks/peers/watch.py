"""Run a command and watch its whole family of processes from outside: CPU seconds, and the peak of memory together."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
EVERY = 0.05


class Watched(NamedTuple):
    output: str
    errors: str
    code: int
    cpu: float
    wall: float
    megabytes: float


def watch(command: list[str], folder: Path, seconds: float) -> Watched:
    """Linux only: reads /proc. A family that takes longer than `seconds` is ended."""
    quiet = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    begun = time.perf_counter()
    cpu: dict[int, float] = {}
    most = 0.0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:  # a pipe could fill up
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | quiet, stdout=output, stderr=errors, start_new_session=True
        )
        known = {process.pid}
        while process.poll() is None and time.perf_counter() - begun < seconds:
            memory = 0
            for pid, seconds_used, pages in _family(process.pid, known):
                cpu[pid], memory = max(cpu.get(pid, 0.0), seconds_used), memory + pages * _PAGE
            most = max(most, memory / 2**20)
            time.sleep(EVERY)
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
        code, wall = process.wait(), time.perf_counter() - begun
        said, complained = (file.seek(0) or file.read() for file in (output, errors))
    return Watched(str(said), str(complained), -signal.SIGKILL if late else code, sum(cpu.values()), wall, most)


def _family(root: int, known: set[int]) -> list[tuple[int, float, int]]:
    """(pid, CPU seconds, resident pages) of the root and of all that descend from it or share its session."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parent, session = int(fields[1]), int(fields[3])
        pid = int(folder.name)
        if pid in known or parent in known or session == root:
            known.add(pid)
            found.append((pid, (int(fields[11]) + int(fields[12])) / _TICK, int(fields[21])))
    return found
