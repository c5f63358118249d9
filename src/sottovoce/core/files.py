"""Files: read up to a size, with errors that name the file and never quote what it holds; and made durable."""

import math
import os
from importlib import resources
from pathlib import Path

from sottovoce.core import check


def read_bytes(
    path: Path, most: int | None = None, missing: str = "there is no such file", first_line: bool = False
) -> bytes:
    """What the file holds, or its first line and no more; refused beyond `most` bytes.

    `missing`: what is said where there is no such file.
    """
    try:
        with path.open("rb") as file:
            content = file.readline() if first_line else file.read(-1 if most is None else most + 1)
    except FileNotFoundError:
        raise check.MissingData(f"{path}: {missing}") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise check.MissingData(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    fits = most is None or len(content) <= most
    check.require(fits, str(path), f"must have at most {(most or 0) // 2**20} MiB")
    return content


def sync_folder(path: Path) -> None:
    """Sync a folder: a rename in it is durable only then."""
    if os.name == "nt":  # Windows has no handle to sync a folder by
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def packaged_text(package: str, name: str) -> str:
    """The text of a file that comes with this library, in `sottovoce.<package>`."""
    return resources.files("sottovoce").joinpath(*package.split("."), name).read_text("utf-8")


def utf8(who: str, content: bytes, what: str) -> str:
    """`content` as text. Python's error contains all of it, so ours is raised after it, not while handling it."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = error.start
    raise check.InvalidInput(f"{who}: must be {what} in UTF-8, and byte {bad} is not")


def number_or_nan(text: str) -> float:
    """The number that a text stands for; NaN if it stands for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
