"""`sottovoce report`: finished runs as one HTML page that needs nothing else, for people who decide.

All that comes from run folders is outside input: text goes through `report_html`, which escapes it, and the page's
content security policy allows the two scripts of our own, by their hashes, and no connection at all.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

import sottovoce
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.core.round import NOT_RELEASED
from sottovoce.experiment import saved, store, whole_files
from sottovoce.experiment.publishable import private_columns, released, tested_on_owners, without_folders
from sottovoce.experiment.repetitions import MEASURES, Repetitions, interval, paired, pool, told
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import to_toml
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.report import charts as charts
from sottovoce.report import words as words
from sottovoce.report.html import Markup, allowed, data, element, joined, script, table

_MOST_GROUPS = 12
_UNITS = ("one record", "one client", "one whole client", "one column of", "one party")
_POLICY = "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def write(
    folders: Sequence[Path],
    path: Path,
    title: str = "",
    released_only: bool = False,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Path:
    """Read the runs, and write the page to `path`; an older page there is replaced."""
    check.require(path.suffix in (".html", ".htm"), str(path), "a report must be named *.html")
    found = run_folders(folders)
    results = []
    for done, folder in enumerate(found):
        progress("reading runs", done, len(found))
        results.append(_read(folder))
    progress("writing", 0, 0)
    groups = pool(found, [released(each) if released_only else each for each in results])
    whole_files.write_page(path, page(groups, title))
    return path


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Run folders among and directly inside `folders`."""
    found: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise MissingData(f"{folder}: there is no such run folder")
        inside = [folder] if (folder / store.CONFIG).exists() else sorted(folder.glob(f"*/{store.CONFIG}"))
        check.require(bool(inside), str(folder), f"is no run folder and holds none: there is no {store.CONFIG}")
        found += [each if each == folder else each.parent for each in inside]
    return found


def _read(folder: Path) -> Result:
    result = saved.load_result(folder)
    config, history = result.config, result.history
    known = isinstance(config.get("algorithm", {}).get("name"), str) and {"privacy", "run"} <= set(config)
    check.require(known, str(folder / store.CONFIG), "must have tables [algorithm] with a name, [privacy] and [run]")
    said = result.guarantee
    whole = said.epsilon is None or (said.delta is not None and any(each in said.unit for each in _UNITS))
    check.require(whole, str(folder / store.GUARANTEE), "an epsilon needs a delta and a known unit", said.unit)
    where = str(folder / store.HISTORY)
    try:
        rounds, run = (np.asarray(history.columns[name], dtype=np.int64) for name in ("round", "run"))
        numbers = {name: np.asarray(column, dtype=np.float64) for name, column in history.columns.items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{where}: must hold numbers, with a round and a run in every row ({error})") from None
    check.require(len(numbers["round"]) > 0, where, "holds no round; there is nothing to show")
    runs = 1 + int(run.max(initial=0))
    in_order = len(run) % runs == 0 and np.array_equal(run, np.tile(np.arange(runs), len(run) // runs))
    in_order = in_order and np.array_equal(rounds, np.repeat(np.unique(rounds), runs))
    check.require(bool(in_order), where, "must hold the runs of one round after the other, rounds increasing")
    return result


# ------------------------------------------------------------------------------------------------------------- the page


def page(groups: Sequence[Repetitions], title: str = "") -> str:
    """The whole page as text; one line in each chart for each of `groups`."""
    from plotly.offline import get_plotlyjs

    check.require(len(groups) <= _MOST_GROUPS, "report", f"shows at most {_MOST_GROUPS} different runs", len(groups))
    library, code, style = get_plotlyjs(), _asset("page.js"), _asset("page.css")
    heading = title or ("Report on " if len(groups) == 1 else "Comparison of ") + _listed(
        group.name for group in groups
    )
    progress, spending, traffic = charts.progress_charts(groups), _spending(groups), charts.bytes_charts(groups)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=_POLICY.format(f"{allowed(library)} {allowed(code)}"),
        ),
        element("meta", name="generator", content=f"sottovoce {sottovoce.__version__}"),
        element("title", heading),
        Markup(f"<style>{style}</style>"),
    )
    sections = (
        ("short", "In short", _short(groups)),
        ("privacy", "Privacy", joined(_promises(groups), _panels(spending, _alike(groups, spending)))),
        ("training", "How training went", _panels(progress, _bands(groups))),
        ("traffic", "What was sent", _panels(traffic, element("p", _traffic(groups)))),
        ("repeat", "How to repeat it", joined(_repeat(group) for group in groups)),
    )
    links = [element("li", element("a", words_, href=f"#{name}")) for name, words_, _ in sections]
    body = element(
        "body",
        element(
            "header",
            element("h1", heading),
            element("p", _owners(groups), class_="quiet"),
            element("nav", element("ul", links), aria_label="Sections"),
        ),
        element(
            "main",
            [
                element("section", element("h2", words_, id=f"{name}-heading"), inside, id=name)
                for name, words_, inside in sections
            ],
        ),
        element("footer", f"Made by sottovoce {sottovoce.__version__}. This page loads nothing from anywhere."),
        data("charts", [*progress, *spending, *traffic]),
        script(library),
        script(code),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> str:
    return resources.files("sottovoce.report").joinpath(name).read_text(encoding="utf-8")


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _owners(groups: Sequence[Repetitions]) -> str:
    counts = {_clients(group) for group in groups}
    whose = f"{counts.pop()} owners" if len(counts) == 1 and 0 not in counts else "several owners"
    return f"One model, trained over the data of {whose}."


def _clients(group: Repetitions) -> int:
    """How many there are; 0 where that is not known."""
    said = group.first.config.get("data", {}).get("clients", 0)
    return len(group.guarantee.epsilon_of_client) or (said if isinstance(said, int) else 0)


# ------------------------------------------------------------------------------------------------------------- in short


def _short(groups: Sequence[Repetitions]) -> Markup:
    if len(groups) == 1:
        return joined(_cards(groups[0]), _stopped(groups))
    measures = [measure for measure in MEASURES if any(group.has(measure[0]) for group in groups)]
    headings = [
        "run",
        "privacy",
        *(_marked(words_, column, groups) for column, words_, _ in measures),
        "rounds",
        "sent up",
    ]
    rows = [
        [
            group.name,
            words.headline(group.guarantee),
            *(_end(group, column, form) for column, _, form in measures),
            _rounds(group),
            _megabytes(group, "bytes_up"),
        ]
        for group in groups
    ]
    caption = "At the end of training" + (", with 95 % intervals of the mean" if _repeated(groups) else "")
    return joined(table(headings, rows, caption), _differences(groups), _stopped(groups))


def _cards(group: Repetitions) -> Markup:
    cards = [("Privacy", *words.headline(group.guarantee).partition(": ")[::2])]
    for column, said, form in MEASURES:
        if group.has(column):
            mean, _, spread = _end(group, column, form).partition("\n(")
            sure = f"95 % interval over {len(group.keys)} seeds: {spread.rstrip(')')}"
            note = sure if spread else "on public test rows"
            cards.append((said, mean, words.PRIVATE if column in private_columns(group.first) else note))
    clients = _clients(group)
    repeated = f", repeated {len(group.keys)} times" if len(group.keys) > 1 else ""
    method = f"{group.first.config['algorithm']['name']}{repeated}"
    cards.append(("Rounds", _rounds(group), method))
    if clients:
        cards.append(("Owners of data", str(clients), f"{_megabytes(group, 'bytes_up')} sent by all of them together"))
    boxes = [
        element(
            "div",
            element("dt", f"{name[0].upper()}{name[1:]}"),
            element("dd", value, element("small", note)),
            class_="card",
        )
        for name, value, note in cards
    ]
    return element("dl", boxes, class_="cards")


def _differences(groups: Sequence[Repetitions]) -> Markup:
    """Tables of differences to the first, where all were run with the same seeds."""
    first, others = groups[0], groups[1:]
    rows = []
    for other in others:
        for column, said, form in MEASURES:
            difference = paired(first, other, column)
            if difference is not None:
                rows.append([other.name, _marked(said, column, [other]), *told(difference.plain(), form, sign=True)])
    if not rows:
        return Markup("")
    caption = f"Difference to {first.name}, paired by seed ({len(first.keys)} seeds)"
    return table(["run", "measure", "mean difference", "95 % interval"], rows, caption)


def _end(group: Repetitions, column: str, form: str) -> str:
    if not group.has(column):
        return "–"
    mean, spread = told(interval(group.last(column)).plain(), form)
    return mean if spread == "–" else f"{mean}\n({spread})"


def _marked(said: str, column: str, groups: Sequence[Repetitions]) -> str:
    private = any(column in private_columns(group.first) for group in groups)
    return f"{said}\n({words.PRIVATE})" if private else said


def _rounds(group: Repetitions) -> str:
    done = sorted({result.rounds for result in group.results})
    return str(done[0]) if len(done) == 1 else f"{done[0]} to {done[-1]}"


def _megabytes(group: Repetitions, column: str) -> str:
    return f"{group.last(column).mean() / 1e6:.4g} MB" if group.has(column) else "–"


def _repeated(groups: Sequence[Repetitions]) -> bool:
    return any(len(group.keys) > 1 for group in groups)


def _stopped(groups: Sequence[Repetitions]) -> Markup:
    reasons = [(group.name, result.stopped) for group in groups for result in group.results if result.stopped]
    return joined(element("p", f"{name} stopped early, {why}.") for name, why in dict(reasons).items())


# -------------------------------------------------------------------------------------------------------------- privacy


def _promises(groups: Sequence[Repetitions]) -> Markup:
    """What is promised, one box for each different promise; then what every reader must know, once."""
    boxes: dict[Markup, list[str]] = {}
    lists: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        boxes.setdefault(_promise(group.guarantee), []).append(group.name)
        lists.setdefault(group.guarantee.not_covered, []).append(group.name)
    shown = sum(len(group.keys) for group in groups)
    caveats = dict.fromkeys(each for group in groups for each in words.caveats(group.guarantee, shown))

    def whose(names: list[str]) -> str:
        return f" ({_listed(names)})" if len(names) < len(groups) else ""

    return joined(
        [joined(element("h3", _listed(names)) if len(groups) > 1 else "", box) for box, names in boxes.items()],
        [element("p", each, class_="bad") for each in caveats],
        [
            joined(
                element("h3", f"What it does not cover{whose(names)}"),
                element("ul", [element("li", f"{each[0].upper()}{each[1:]}.") for each in not_covered]),
            )
            for not_covered, names in lists.items()
            if not_covered
        ],
    )


def _promise(guarantee: Guarantee) -> Markup:
    proven = guarantee.epsilon is not None
    strong = proven and not words.promises_little(guarantee)
    more = {"open": ""} if "party" in guarantee.unit else {}  # of split columns only the full statement tells all
    full = element("details", element("summary", "The statement in full"), element("p", guarantee.text), **more)
    return element(
        "div",
        element("h3", words.headline(guarantee)),
        [element("p", each) for each in words.meaning(guarantee)],
        full if proven else "",
        class_="good" if strong else "bad",
    )


def _spending(groups: Sequence[Repetitions]) -> list[charts.Chart]:
    return [chart for chart in (charts.spending_chart(groups), charts.clients_chart(groups)) if chart is not None]


def _alike(groups: Sequence[Repetitions], drawn: Sequence[charts.Chart]) -> Markup:
    if not drawn:
        return element("p", "No run on this page has a budget, so none is shown as spent.", class_="quiet")
    said = "ε adds up over rounds; clients that are asked more often spend more."
    if _repeated(groups):
        said += " Of several repetitions, the one that spent most is shown."
    return element("p", said, class_="quiet")


# --------------------------------------------------------------------------------------------------------------- charts


def _panels(drawn: Sequence[charts.Chart], note: Markup) -> Markup:
    return joined(note, element("div", [_panel(chart) for chart in drawn], class_="panels"))


def _panel(chart: charts.Chart) -> Markup:
    headings, rows = charts.rows_of(chart)
    ends = "; ".join(
        f"{name}: from {first} to {last}"
        for name, first, last in zip(headings[1:], rows[0][1:], rows[-1][1:], strict=True)
    )
    badge = element("span", words.PRIVATE, class_="badge") if chart["private"] else ""
    title = chart["title"]
    return element(
        "figure",
        element("figcaption", title, badge),
        element("div", id=f"chart-{chart['id']}", class_="chart", role="img", aria_label=f"{title}. {ends}."),
        element("details", element("summary", "The numbers"), table(headings, rows, title)),
    )


def _bands(groups: Sequence[Repetitions]) -> Markup:
    said = []
    if _repeated(groups):
        counts = _listed(f"{len(group.keys)} seeds of {group.name}" for group in groups if len(group.keys) > 1)
        said.append(
            f"Lines are means over {counts}, bands their 95 % intervals by Student's t. They show chance in training, "
            "not in the choice of test rows."
        )
    if any(group.has(column) for group in groups for column in NOT_RELEASED):
        said.append(
            "The training objective is read off private rows. A simulation may look at it; no guarantee covers it, and "
            "a page that leaves the house is better made with --released-only."
        )
    if any(tested_on_owners(group.first.config) and group.has("test_loss") for group in groups):
        said.append(
            "Test rows were set aside from the owners' own: what is measured on them is exact, and no guarantee covers "
            "it. --released-only leaves it out."
        )
    return joined(element("p", each, class_="quiet") for each in said)


def _traffic(groups: Sequence[Repetitions]) -> str:
    return (
        _listed(
            f"{group.name}: {_megabytes(group, 'bytes_up')} by the clients, {_megabytes(group, 'bytes_down')} to them"
            for group in groups
        )
        + "."
    )


# --------------------------------------------------------------------------------------------------------------- repeat


def _repeat(group: Repetitions) -> Markup:
    config = without_folders(group.first.config)
    again = f"sottovoce run {shlex.quote('config.toml')} --out again"
    inside: list[str] = [element("h3", group.name)]
    if config.get("data", {}).get("source") == "arrays":
        said = "This run was trained in Python on arrays, which are not kept: train on them with the settings below."
        inside.append(element("p", said))
    else:
        inside.append(element("p", "Save the settings below as config.toml (files of rows next to it) and run:"))
        inside.append(element("pre", element("code", again)))
        if len(group.results) > 1:
            seeds = ", ".join(str(result.config["run"].get("seed")) for result in group.results)
            inside.append(element("p", f"and again with --seed for each of the seeds {seeds}."))
    noise, seed = group.guarantee.noise, config["run"].get("seed")
    if seed is None or (noise and not noise.startswith("simulation")):
        said = "The noise came from the operating system and was not kept: a repeat will have other noise."
    else:
        said = f"Seed {seed}: with the same versions the same numbers come again."
    inside.append(element("p", said))
    inside.append(element("details", element("summary", "Settings"), element("pre", element("code", to_toml(config)))))
    if group.folders:
        versions = saved.load_versions(group.folders[0])
        rows = [[name, version] for name, version in versions.items()]
        inside.append(element("details", element("summary", "Versions"), table(["what", "version"], rows, "Made with")))
    return joined(inside)
