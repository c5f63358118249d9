"""Run files, files of rows and files of nodes that are wrong, and in which every cell is a marker."""

import itertools
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.cli import terminal
from sottovoce.deploy.node import Node
from sottovoce.experiment import run_file as run_files
from sottovoce.experiment import saved, store
from sottovoce.experiment.tables import to_toml
from tests.attacks.marker_calls import Case, trained, with_entry
from tests.attacks.markers import NUMBER, ROWS, SIGNS, TEXT, WORDS, X
from tests.command_line import invoke
from tests.deploy.test_node import asks
from tests.deployments import LIMITS

HEADER = ["x0", "x1", "owner", "outcome"]


def csv_lines() -> list[list[str]]:
    """A file of marked rows in which nothing is wrong."""
    rows = [[repr(float(X[row, 0])), repr(float(X[row, 1])), "abcd"[row // 2], "ill" if row % 2 else "well"]
            for row in range(ROWS)]  # fmt: skip
    return [list(HEADER), *rows]


def changed(line: int, column: int, text: str) -> bytes:
    lines = csv_lines()
    lines[line][column] = text
    return in_bytes(lines)


def in_bytes(lines: list[list[str]]) -> bytes:
    return "\n".join(",".join(line) for line in lines).encode()


def all_labels(texts: list[str]) -> bytes:
    lines = csv_lines()
    return in_bytes([lines[0], *([*line[:3], texts[row % len(texts)]] for row, line in enumerate(lines[1:]))])


def csv_files() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Files in which something is wrong, or changes of [data] that make it so."""
    good, marked = csv_lines(), [f"{TEXT}{number}" for number in range(5)]
    plain = in_bytes(good)
    return {
        "no column of labels": (plain, {"label": "result"}),
        "no column of owners": (plain, {"owner": "hospital"}),
        "no header": (in_bytes(good[1:]), {}),
        "no header, text alone": (in_bytes([[*WORDS[row], f"{TEXT}{row}"] for row in range(ROWS)]), {}),
        "a name twice": (changed(0, 1, "x0"), {}),
        "a gap": (changed(3, 1, ""), {}),
        "a gap in labels": (changed(3, 3, ""), {}),
        "a gap in owners": (changed(3, 2, ""), {}),
        "text": (changed(3, 1, f"{TEXT}cell"), {}),
        "infinity": (changed(3, 1, "-inf"), {}),
        "too many fields": (changed(3, 1, f"{NUMBER},{NUMBER}"), {}),
        "too few fields": (in_bytes([*good, [repr(NUMBER)]]), {}),
        "a quote that is not closed": (changed(3, 1, f'"{TEXT}'), {}),
        "text after a quote": (changed(3, 1, f'"{TEXT}"{NUMBER}'), {}),
        "another encoding": (changed(3, 1, f"{TEXT}é").decode().encode("latin-1"), {}),
        "a zero byte": (changed(3, 1, f"{TEXT}\0{NUMBER}"), {}),
        "a field without end": (changed(3, 1, TEXT * 20_000), {}),
        "semicolons": (plain.replace(b",", b";"), {}),
        "nothing": (b"", {}),
        "a header alone": (in_bytes(good[:1]), {}),
        "one class": (all_labels(marked[:1]), {}),
        "five classes": (all_labels(marked), {}),
        "five numbered classes": (all_labels([repr(float(X[row, 0])) for row in range(5)]), {}),
        "labels that were not declared": (all_labels(marked[:2]), {"labels": ["ill", "well"]}),
        "too long rows": (plain, {"row_bound": 1.0}),
        "a range missing": (plain, {"ranges": {"x0": [0.0, 1.0]}}),
        "a range of no column": (plain, {"ranges": {"x0": [0.0, 1.0], "x1": [0.0, 1.0], "x9": [0.0, 1.0]}}),
        "a range upside down": (plain, {"ranges": {"x0": [0.0, 1.0], "x1": [1.0, 0.0]}}),
        "a column cut away": (plain, {"split": [1, 2], "owner": "owner"}),
        "owners lose all rows": (plain, {"test": 6}),
        "a partition that does not fit": (plain, {"clients": 99, "partition": "iid"}),
    }


def run_file(folder: Path, content: bytes, data: dict[str, Any], **tables: Any) -> Path:
    (folder / "rows.csv").write_bytes(content)
    # One that holds, so that the warning that none is stated is not taken for a refusal.
    bound = {} if "split" in data or "ranges" in data else {"row_bound": 1e7}
    given = {
        "data": {"csv": "rows.csv", "label": "outcome", "owner": "owner"} | bound | data,
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 0.1},
        "algorithm": {"name": "dp-admm"},
        "privacy": {"mode": "proven", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0},
        "run": {"rounds": 2, "seed": 1, "engine": "numpy"},
    } | tables
    (folder / "run.toml").write_text(to_toml(given))
    return folder / "run.toml"


def command(*words: object) -> list[str]:
    """What a command printed; in an error of the program (exit code 1) the error itself is looked at, too."""
    outcome = invoke([str(word) for word in words])
    word = "refused" if outcome.exit_code not in (0, terminal.INTERNAL) else "internal" if outcome.exit_code else "done"
    return [f"{word}: {outcome.output}", outcome.stdout, outcome.stderr]


def cases_of_files(folder: Path) -> Iterator[Case]:
    commands: dict[str, Callable[[Path], Any]] = {
        "load": lambda file: run_files.load(file).data(),
        "run": lambda file: command("run", file, "--out", folder / "here" / "run"),
        "compare": lambda file: command("compare", file, file, "--seeds", 2),
        "audit": lambda file: command("audit", file, "--runs", 10),
        "audit --one-run": lambda file: command("audit", file, "--one-run", "--canaries", 4),
        "audit --membership": lambda file: command("audit", file, "--membership"),
        "app --nodes": lambda file: command("app", folder / "here/app", "--config", file, "--nodes", folder / "here/n"),
    }
    for number, (wrong, (content, data)) in enumerate(csv_files().items()):
        home = folder / f"run-{number}"
        home.mkdir()
        file = run_file(home, content, data)
        for name, call in commands.items():
            yield name, wrong, partial(call, file)
    regression = {"objective": {"loss": "squared", "penalty": "l2", "lam": 0.1}}
    home = folder / "run-regression"
    home.mkdir()
    file = run_file(home, all_labels([repr(NUMBER), f"{TEXT}y"]), {}, **regression)
    yield "run", "labels of a regression", lambda: command("run", file)
    good = folder / "run-good"
    good.mkdir()
    run_file(good, in_bytes(csv_lines()), {})
    rows = good / "rows.csv"
    latin = good / "latin.csv"
    latin.write_bytes(changed(3, 1, f"{TEXT}é").decode().encode("latin-1"))
    for file, name in itertools.product((rows, latin), ("run", "compare", "report", "node check", "audit")):
        yield name, f"a file of rows, {file.name}", partial(command, *name.split(), file)
    yield "run --resume", "a file of rows", lambda: command("run", "--resume", rows)
    for name in store.CONFIG, store.SUMMARY, store.MODEL, store.HISTORY:
        run = folder / f"result-{name}"
        trained().save(run)
        (run / name).write_bytes(rows.read_bytes())
        yield "load_result", f"rows in place of {name}", partial(saved.load_result, run)
        yield "report", f"rows in place of {name}", partial(command, "report", run)


def arrays() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What is in an .npz file of a node that is wrong, and how its [data] differs."""
    four = NUMBER + np.arange(ROWS * 4).reshape(ROWS, 4) / 1024
    gap = four.copy()
    gap[3, 1] = np.nan
    return {
        "text": ({"X": np.resize(WORDS, (ROWS, 4)), "y": SIGNS}, {}),
        "a gap": ({"X": gap, "y": SIGNS}, {}),
        "complex": ({"X": four * 1j, "y": SIGNS}, {}),
        "one axis": ({"X": four[:, 0], "y": SIGNS}, {}),
        "too long rows": ({"X": four, "y": SIGNS}, {}),
        "no labels": ({"X": four}, {}),
        "too few labels": ({"X": four, "y": four[:3, 0]}, {}),
        "labels of two axes": ({"X": four, "y": four}, {}),
        "records": ({"X": np.array([(NUMBER, TEXT)], dtype=[("a", float), ("b", "U20")]), "y": SIGNS}, {}),
        "pickled objects": ({"X": with_entry(TEXT), "y": SIGNS}, {}),
        "unknown labels": ({"X": four / 1e7, "y": four[:, 0]}, {}),
        "unknown labels of text": ({"X": four / 1e7, "y": WORDS[:, 0]}, {}),
        "an id twice": ({"X": four / 1e7, "y": SIGNS, "id": np.full(ROWS, TEXT)}, {"id": "id"}),
        "too few ids": ({"X": four / 1e7, "y": SIGNS, "id": WORDS[:3, 0]}, {"id": "id"}),
    }


def node_file(home: Path, data: dict[str, Any]) -> Path:
    home.mkdir()
    given = {"labels": ["-1", "1"], "row_bound": 1.0} | data
    (home / "node.toml").write_text(to_toml({"node": {"name": "north"}, "data": given, "limits": LIMITS}))
    return home / "node.toml"


def cases_of_nodes(folder: Path) -> Iterator[Case]:
    files = {}
    for number, (wrong, (content, data)) in enumerate(arrays().items()):
        files[wrong] = node_file(folder / f"node-{number}", {"npz": "rows.npz"} | data)
        np.savez(files[wrong].parent / "rows.npz", **content)
    files["a zip of text"] = node_file(folder / "node-zip", {"npz": "rows.npz"})
    with zipfile.ZipFile(files["a zip of text"].parent / "rows.npz", "w") as archive:
        archive.writestr("X.npy", f"{NUMBER},{TEXT}")
    for number, (wrong, (content, data)) in enumerate(csv_files().items()):
        if not data or "label" in data or "labels" in data or "row_bound" in data:
            own = {"csv": "rows.csv", "label": "outcome", "labels": ["ill", "well"]}
            files[f"csv, {wrong}"] = node_file(folder / f"node-csv-{number}", own | pick(data, "label", "row_bound"))
            (files[f"csv, {wrong}"].parent / "rows.csv").write_bytes(content)
    ask = question()
    for wrong, file in files.items():
        yield "Node.answer", wrong, lambda file=file: replied(Node(file).answer(ask))
        if "label" not in wrong and "class" not in wrong:  # what labels mean is asked when a loss is known
            yield "Node.status", wrong, lambda file=file: replied(Node(file).status())
            yield "Node.inspect", wrong, lambda file=file: Node(file).inspect()
            yield "sottovoce node check", wrong, partial(command, "node", "check", file)


def question() -> Any:
    return asks("dp-admm")[0]


def pick(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: table[name] for name in names if name in table}


def replied(reply: Any) -> list[str]:
    return [f"{'refused' if getattr(reply, 'code', '') else 'answered'}: {reply}"]
