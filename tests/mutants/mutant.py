"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug, planted by replacing a part of one line.

    Parameters
    ----------
    name, what
        A short name for the command line, and the bug in one sentence.
    file
        Under `src/sottovoce/`.
    before, after
        The text there, which occurs exactly once, and what takes its place.
    tests
        Arguments of pytest: tests near the code that must fail.
    audit
        Words after `sottovoce audit`; empty where no audit can see this bug.
    blind
        Then: why not.
    """

    name: str
    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    audit: tuple[str, ...] = ()
    blind: str = ""


def near(file: str, *names: str) -> tuple[str, ...]:
    """The arguments for these tests of a file; for all of it if none is named."""
    return (f"tests/{file}.py", *(("-k", " or ".join(names)) if names else ()))
