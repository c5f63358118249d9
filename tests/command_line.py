"""Our program, called in this process. Typer would make all commands anew for every call; here that is done once."""

from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

from click import Command
from click.testing import CliRunner, Result
from typer.main import get_command

from sottovoce.cli import terminal
from sottovoce.cli.main import app


@cache
def commands() -> Command:
    return get_command(app)


def invoke(words: Sequence[str], **options: Any) -> Result:
    with patch.object(terminal, "LOG_LOOKS", 1e6):  # seconds: what is printed must not depend on how long it took
        return CliRunner().invoke(commands(), words, **options)
