"""What the docs print runs, what they name exists, and they build without a warning."""

import doctest
import html
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce
from sottovoce.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALLER = {  # what an example does as well with fewer rows, rounds or runs; `make docs` runs them as they are
    "plot_adult_income": {"rounds=50": "rounds=3", "test=5222": "test=42_000", "0.3, 1.0, 3.0, ": ""},
    "plot_audit": {"rounds = [1, 3, 10, 30]": "rounds = [1, 10]", "runs=4000": "runs=400"},
    "plot_budgets": {"epsilon=0.4": "epsilon=0.7"},
    "plot_custom_algorithm": {"rounds=40, privacy=": "rounds=4, privacy="},
    "plot_four_hospitals": {"range(6)": "range(1)", "[0.5, 1, 2, 4, 8]": "[1, 4]"},
    "plot_ten_hospitals": {
        "np.arange(200, 1200, 100)": "np.arange(50, 300, 25)",
        "runs=5": "runs=2",
        "[-5:]": "[-2:]",
        "[0.1, 0.2, 0.5, 1.0, 2.0]": "[0.1, 2.0]",
    },
    "plot_two_companies": {
        "order[:40_000]": "order[:4_000]",
        "order[40_000:]": "order[-500:]",
        "0.3, 1, 3, ": "",
    },
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


GUARANTEES = (("result", "guarantee"), ("model", "guarantee_"))
WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.filterwarnings("ignore:.*was fitted before")  # as the page on cross-validation says
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_python_runs_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page, one after the other; they expect the reader's own X, y, groups and X_new, or a file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 4)), rng.integers(0, 5, size=300)
    names = {"X": X, "y": np.where(X[:, 0] > 0, 1.0, -1.0), "groups": groups, "X_new": X[:3]}
    own = zip(50 + 9 * X[:, 0], 120 + 9 * X[:, 1], np.where(X[:, 0] > 0, "ill", "well"), groups, strict=True)
    rows = [f"{age:.1f},{pressure:.1f},{outcome},{hospital}" for age, pressure, outcome, hospital in own]
    Path("rows.csv").write_text("\n".join(["age,pressure,outcome,hospital", *rows]))
    module = type(sys)("printed")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "printed", module)
    module.__dict__.update(names)
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), module.__dict__)  # our own text
    said = [getattr(module.__dict__.get(name), where, None) for name, where in GUARANTEES]
    assert all(each.epsilon <= 4.0 for each in said if each is not None)
    assert any(said) or page.stem == "sharp-edges"  # which has no result of its own


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.stem)
def test_run_files_run_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.experiment import run_file

    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "toml"):
        read = tomllib.loads(block)
        if not {"data", "algorithm"} <= read.keys():  # another kind of file, or one that is told where the rows are
            continue
        rng = np.random.default_rng(1)
        data = read["data"]
        names, words = ["age", "pressure", data["label"], data["owner"]], data.get("labels", [0, 1])
        points = enumerate(rng.normal(size=(200, 2)))
        lines = [f"{a:.3f},{b:.3f},{words[int(a > b)]},{'ab'[i % 2]}" for i, (a, b) in points]
        Path(data["csv"]).write_text("\n".join([",".join(names), *lines]))
        Path("run.toml").write_text(block)
        result = run_file.load(Path("run.toml"), rounds=3).train()
        assert result.rounds == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_named_exists(page: Path) -> None:
    from typer.main import get_command

    from sottovoce.cli.main import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, words in re.findall(r"(?:bin/|`)sottovoce ([a-z]+)\b([^`\n#]*)", page.read_text(encoding="utf-8")):
        assert name in known, f"{page.name} names `sottovoce {name}`"
        command, options = known[name], words
        if hasattr(command, "commands") and words.strip():  # a group: its next word is one of its commands
            inner = words.split()[0]
            assert inner in command.commands, f"{page.name} names `sottovoce {name} {inner}`"
            command = command.commands[inner]
        offered = {name for option in command.params for name in option.opts}
        for option in re.findall(r"(?<!\S)--[a-z-]+", options):
            assert option in offered, f"{page.name}: `sottovoce {name}{words}` has no {option}"


def test_the_readme_names_every_command() -> None:
    from typer.main import get_command

    from sottovoce.cli.main import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert known <= set(re.findall(r"bin/sottovoce (\w+)", (ROOT / "README.md").read_text()))


def referred() -> list[tuple[str, Any]]:
    """Every name in the reference, with what it names: where a module is named, its public classes and functions."""
    found = []
    for path, members in re.findall(r"^::: (\S+)(?:\n +options:\n +members: \[(.*)\])?", REFERENCE.read_text(), re.M):
        module, _, name = path.rpartition(".")
        if name[0].isupper() or not (ROOT / "src" / f"{path.replace('.', '/')}.py").is_file():
            found.append((path, getattr(import_module(module), name)))
            continue
        inside = vars(import_module(path))
        names = members.split(", ") if members else [name for name in inside if name[0] != "_"]
        mine = ((name, inside[name]) for name in names)
        own = [(f"{path}.{name}", one) for name, one in mine if getattr(one, "__module__", "") == path]
        found += [(name, one) for name, one in own if inspect.isclass(one) or inspect.isfunction(one)]
    return found


@pytest.mark.parametrize(("name", "named"), referred(), ids=lambda one: one if isinstance(one, str) else "")
def test_examples_of_the_reference_run(name: str, named: Any) -> None:
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(named) or "", {}, name, None, None)
    assert examples.examples, f"{name} has no example"
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(examples, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_the_reference_has_every_public_name() -> None:
    """But for the algorithms, which `sottovoce list` describes, and `Module`, whose examples need PyTorch."""
    named = [one for _, one in referred()]
    listed = [*ALGORITHMS.values(), sottovoce.Module]
    public = {name: getattr(sottovoce, name) for name in dir(sottovoce)}
    missing = [name for name, one in public.items() if callable(one) and one not in (*named, *listed)]
    assert missing == []


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The docs, built without a network and with warnings as errors. That runs every example, most of them smaller."""
    folder, examples = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("examples")
    for example in EXAMPLES:
        text = example.read_text(encoding="utf-8")
        for large, small in SMALLER.get(example.stem, {}).items():
            assert text.count(large) == 1, f"{example.name}: {large}"
            text = text.replace(large, small)
        (examples / example.name).write_text(text, encoding="utf-8")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = {
        **os.environ,
        **nowhere,
        "no_proxy": "",
        "NO_MKDOCS_2_WARNING": "1",
        "GALLERY_EXAMPLES": str(examples),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES[1:]:
        assert (site / f"{page.stem}.html").is_file(), page.name
    overview = (site / "gallery" / "index.html").read_text(encoding="utf-8")
    for example in EXAMPLES:
        story = (site / "gallery" / f"{example.stem}.html").read_text(encoding="utf-8")
        figure = f"{example.stem}_1.png"
        assert f'src="{figure}"' in story
        assert f'src="{figure}"' in overview
        assert (site / "gallery" / figure).read_bytes().startswith(b"\x89PNG")


def test_the_papers_equations_lead_to_lines(site: Path) -> None:
    shown = html.unescape(re.sub(r"<[^>]*>", "", (site / "papers.html").read_text(encoding="utf-8")))
    for name in ("dp_admm", "fedspd_dp", "fed_plt", "fedepm", "admm_sharing"):
        lines = (ROOT / "src" / "sottovoce" / "algorithms" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        numbers = [int(number) for number in re.findall(rf"algorithms/{name}\.py:(\d+)", shown)]
        assert len(numbers) >= 3
        assert all(re.search(r"  # .*(\(\d+[a-e]?\)|line|Prop|Theorem|Lemma)", lines[n - 1]) for n in numbers)


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^\"'\s>]*")
    for page in site.rglob("*.html"):
        assert loads.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]*", sheet.read_text(encoding="utf-8")) == []
