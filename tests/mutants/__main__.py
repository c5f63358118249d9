"""Plant each mutant in a copy of the sources, and see which test and which audit catch it. See `make mutants`."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600  # seconds: a mutant that makes a loop endless is caught by that
VERDICTS = {0: "not refuted", 7: "refuted", 8: "suspicious"}
FLAGGED = (7, 8)
HEAD = """\
# Planted bugs

{killed} of {total} one-line privacy bugs fail a test near the code that they change, and {seen} are refuted or called
suspicious by [`sottovoce audit`](audit.md). Each is planted in a copy of the sources, by itself. Without it all of
these tests pass, and none of these audits finds anything. Where no audit is named, it cannot see the bug, and the table
says why. Made by `make mutants`.

| bug | in | caught by the test | `sottovoce audit` |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the first test that failed ("" if none did), and the exit code of its audit."""

    mutant: Mutant
    test: str
    code: int | None
    tail: str = ""  # of what pytest said, where nothing failed

    @property
    def flagged(self) -> bool:
        return self.code in FLAGGED

    def row(self) -> str:
        verdict = f"cannot see it: {self.mutant.blind}"
        if self.mutant.audit:
            word = VERDICTS.get(self.code or 0, f"exit code {self.code}")
            verdict = f"`{' '.join(self.mutant.audit)}`: {word}"
        test = f"`{self.test}`" if self.test else "**survives**"
        return f"| {self.mutant.what} | `{self.mutant.file}` | {test} | {verdict} |"


class Copy:
    """The sources and tests in a temporary folder, with compiled kernels of their own."""

    def __init__(self, folder: Path, mutant: Mutant | None = None) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        if mutant is not None:
            file = folder / "src" / "sottovoce" / mutant.file
            text = file.read_text()
            if text.count(mutant.before) != 1:
                raise SystemExit(f"{mutant.name}: its text is not in {mutant.file} exactly once")
            file.write_text(text.replace(mutant.before, mutant.after))

    def failing(self, tests: Sequence[str]) -> tuple[str, str]:
        """The first test that fails, "" if all pass; and the end of what pytest said."""
        done = self._run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests)
        if done is None:
            return "(does not end)", ""
        found = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
        if found:
            return re.sub(r"\[.*", "", found[1]), ""
        # Without a test that failed nothing was caught, whatever else went wrong: no such file, nothing selected.
        return "", done.stdout[-2000:] if done.returncode else ""

    def audit(self, words: Sequence[str]) -> int:
        start = "import sys; from sottovoce.cli.main import main; main()"
        done = self._run("-c", start, "audit", *words, "--quiet")
        return -1 if done is None else done.returncode

    def _run(self, *words: str) -> subprocess.CompletedProcess[str] | None:
        own = {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(self.folder / "kernels")}
        own |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
        command = [sys.executable, *words]
        try:
            return subprocess.run(command, cwd=self.folder, env={**os.environ, **own}, text=True, timeout=PATIENCE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        except subprocess.TimeoutExpired:
            return None


def control(mutants: Iterable[Mutant], jobs: int) -> None:
    """Without a mutant every test named must pass, and no audit named may find anything."""
    tests = together(mutants)
    audits = sorted({mutant.audit for mutant in mutants if mutant.audit})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copy = Copy(Path(folder))
        print(f"without a mutant: tests of {len(tests)} files, {len(audits)} audits", flush=True)
        found = [(words, pool.submit(copy.failing, words)) for words in tests]
        codes = [(words, pool.submit(copy.audit, words)) for words in audits]
        wrong = [f"{' '.join(words)}: {' '.join(one.result())}" for words, one in found if any(one.result())]
        wrong += [f"audit {' '.join(words)}: exit code {one.result()}" for words, one in codes if one.result() != 0]
    if wrong:
        raise SystemExit("without any mutant:\n" + "\n".join(wrong))


def together(mutants: Iterable[Mutant]) -> list[tuple[str, ...]]:
    """The tests of all mutants, those of a file in one call."""
    wanted: dict[str, set[str]] = {}
    for mutant in mutants:
        file, *names = mutant.tests
        wanted.setdefault(file, set()).add(f"({names[1]})" if names else "")
    return [(file, *(() if "" in names else ("-k", " or ".join(sorted(names))))) for file, names in wanted.items()]


def planted(mutant: Mutant) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), mutant)
        test, tail = copy.failing(mutant.tests)
        return Outcome(mutant, test, copy.audit(mutant.audit) if mutant.audit else None, tail)


def page(outcomes: Sequence[Outcome]) -> str:
    """The page `docs/mutants.md`."""
    killed, seen = sum(bool(one.test) for one in outcomes), sum(one.flagged for one in outcomes)
    head = HEAD.format(killed=killed, total=len(outcomes), seen=seen)
    return head + "\n".join(one.row() for one in outcomes) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the table goes")
    parser.add_argument("--no-control", action="store_true", help="do not look at the true code first")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - {mutant.name for mutant in MUTANTS})
    if unknown:
        parser.error(f"there is no mutant {unknown[0]!r}")
    chosen = [mutant for mutant in MUTANTS if not asked.names or mutant.name in asked.names]
    begun = time.monotonic()
    if not asked.no_control:
        control(chosen, asked.jobs)
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in as_completed([pool.submit(planted, mutant) for mutant in chosen]):
            one = done.result()
            outcomes[one.mutant.name] = one
            said = "" if one.code is None else VERDICTS.get(one.code, f"exit code {one.code}")
            at = f"{len(outcomes)}/{len(chosen)} {time.monotonic() - begun:.0f} s"
            print(f"{at}  {one.mutant.name}: {one.test or 'SURVIVES'}; audit: {said or '-'}", flush=True)
    ordered = [outcomes[mutant.name] for mutant in chosen]
    if asked.write:
        asked.write.write_text(page(ordered), encoding="utf-8")
    alive = [one.mutant.name for one in ordered if not one.test]
    missed = [one.mutant.name for one in ordered if one.mutant.audit and not one.flagged]
    print(f"{len(ordered) - len(alive)} of {len(ordered)} killed, {sum(one.flagged for one in ordered)} seen by audits")
    if alive or missed:
        raise SystemExit(
            f"survived: {', '.join(alive) or 'none'}; missed by their audits: {', '.join(missed) or 'none'}"
        )


if __name__ == "__main__":
    main()
