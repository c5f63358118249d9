"""A virtual environment for each peer, made when first needed; what it cost to make is kept beside it as JSON."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(os.environ.get("SOTTOVOCE_PEERS", Path(__file__).parents[1] / ".envs"))


@dataclass(frozen=True)
class Environment:
    """What to install, exactly; `python`: the version it needs, where it is not ours."""

    name: str
    packages: tuple[str, ...]
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def interpreter(self) -> Path:
        return FOLDER / self.name / "bin" / "python"

    def ready(self) -> dict[str, float]:
        """Make it unless it stands; what it cost. Raises `Unavailable` with the reason where it cannot be made."""
        receipt = FOLDER / f"{self.name}.json"
        if receipt.exists() and self.interpreter.exists():
            return json.loads(receipt.read_text())
        shutil.rmtree(FOLDER / self.name, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        _run(self.name, str(_find(self.python)), "-m", "venv", str(FOLDER / self.name))
        quiet = ("--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-input")
        _run(self.name, str(self.interpreter), "-m", "pip", "install", *quiet, *self.packages)
        cost = {"seconds": time.perf_counter() - begun, **_size(FOLDER / self.name)}
        receipt.write_text(json.dumps(cost))
        return cost


class Unavailable(Exception):
    """A peer that cannot be measured here, and why."""


_TORCH = "torch==2.13.0"  # its CPU build, where the package index has one: it counts as the later version

ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("decent-bench", ("decent-bench==0.3.0",), python="3.13"),
        Environment(
            "fedjax",  # newer releases of JAX have taken away what it calls
            (
                *("fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "numpy<2"),
                *("dm-haiku==0.0.11", "optax==0.2.1", "chex==0.1.85"),
            ),
        ),
        Environment("pfl", ("pfl[pytorch]==0.6.0", _TORCH)),
        Environment("flower", ("flwr[simulation]==1.41.0",)),
        Environment("jax", ("jax==0.10.2",)),
        Environment("fluke", ("fluke-fl==0.8.1", _TORCH)),
        Environment("appfl", ("appfl==1.12.0", _TORCH)),
    )
}


def _find(version: str) -> Path:
    """An interpreter of this version: on the path, or among those of pyenv or uv."""
    if sys.version.startswith(f"{version}."):
        return Path(sys.executable)
    candidates = [shutil.which(f"python{version}")]
    for folder in (Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"):
        candidates += sorted(map(str, folder.glob(f"*{version}*/bin/python{version}")), reverse=True)
    for candidate in filter(None, candidates):
        answer = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and f" {version}." in answer.stdout:
            return Path(candidate)
    raise Unavailable(f"needs Python {version}, which is not installed here")


def _run(name: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{name} could not be installed: {(done.stderr or done.stdout).strip()[-300:]}")


def _size(folder: Path) -> dict[str, float]:
    site = next(folder.glob("lib/python*/site-packages"))
    size = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file())
    return {"megabytes": size / 2**20, "packages": len(list(site.glob("*.dist-info")))}


if __name__ == "__main__":
    for name in sys.argv[1:] or ENVIRONMENTS:
        try:
            print(name, ENVIRONMENTS[name].ready(), flush=True)
        except Unavailable as reason:
            print(name, reason, flush=True)
