"""`sottovoce report`: finished runs as one HTML page that needs nothing else, for people who decide.

Everything in a run folder is outside input: text goes through `report/html.py`, which escapes it, and the page's
content security policy allows our own two scripts, by their hashes, and no connection at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import sottovoce
from sottovoce.core import check
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Progress, silent
from sottovoce.core.round import NOT_RELEASED
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.publishable import private_columns, released, tested_on_owners, without_folders
from sottovoce.experiment.repetitions import Repetitions, interval, paired, pool
from sottovoce.experiment.tables import to_toml
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.report import charts, numbers, words
from sottovoce.report.html import Markup, allowed, data, element, filled, joined, script, table
from sottovoce.report.numbers import LARGER, MEASURES, METRICS, Measure, of_parties_alone
from sottovoce.report.runs import read, run_folders

_MOST_GROUPS = 12


def write(
    folders: Sequence[Path],
    path: Path,
    title: str = "",
    released_only: bool = False,
    progress: Progress = silent,
) -> Path:
    """Read the runs, and write the page to `path`; an older page there is replaced."""
    check.require(path.suffix in (".html", ".htm"), str(path), "a report must be named *.html")
    run_paths = run_folders(folders)
    results = []
    for done, folder in enumerate(run_paths):
        progress("reading runs", done, len(run_paths))
        result = read(folder)
        results.append(released(result) if released_only else result)
    progress("writing", 0, 0)
    whole_files.replace_file(path, page(pool(run_paths, results), title).encode())
    return path


def page(groups: Sequence[Repetitions], title: str = "") -> str:
    """The whole page as text; one line in each chart for each of `groups`."""
    from plotly.offline import get_plotlyjs

    check.require(len(groups) <= _MOST_GROUPS, "report", f"shows at most {_MOST_GROUPS} different runs", len(groups))
    library, code = get_plotlyjs(), packaged_text("report", "page.js")
    kind = "Report on" if len(groups) == 1 else "Comparison of"
    heading = title or f"{kind} {_listed(group.name for group in groups)}"
    kinds = charts.progress_charts, charts.spending_charts, charts.bytes_charts
    progress, spending, traffic = ([chart for chart in made(groups) if chart.lines] for made in kinds)
    sent = (
        f"{one.name}: {_size(one, 'bytes_up')} by the clients, {_size(one, 'bytes_down')} to them" for one in groups
    )
    sections = (
        ("short", "In short", _short(groups)),
        ("privacy", "Privacy", joined(_promises(groups), _panels(spending, _spending_note(groups, spending)))),
        ("quality", "How good the model is", _quality(groups)),
        ("training", "How training went", _panels(progress, _training_notes(groups))),
        *(("model", "The model", shown) for shown in [_models(groups)] if shown),
        ("traffic", "What was sent", _panels(traffic, element("p", f"{_listed(sent)}."))),
        ("repeat", "How to repeat it", joined(*map(_repeat, groups))),
    )
    links = [element("li", element("a", name, href=f"#{key}")) for key, name, _ in sections]
    inside = (
        element("section", element("h2", name, id=f"{key}-heading"), part, id=key) for key, name, part in sections
    )
    return filled(
        packaged_text("report", "page.html"),
        allowed=f"{allowed(library)} {allowed(code)}",
        version=sottovoce.__version__,
        heading=heading,
        style=Markup(packaged_text("report", "page.css")),
        owners=_owners(groups),
        links=joined(links),
        sections=joined(inside),
        charts=data("charts", [asdict(chart) for chart in (*progress, *spending, *traffic)]),
        library=script(library),
        code=script(code),
    )


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _owners(groups: Sequence[Repetitions]) -> str:
    counts = {_clients(group) for group in groups}
    whose = f"{counts.pop()} owners" if len(counts) == 1 and 0 not in counts else "several owners"
    return f"One model, trained over the data of {whose}."


def _clients(group: Repetitions) -> int:
    """How many there are; 0 where that is not known."""
    stated = group.first.config.get("data", {}).get("clients", 0)
    return len(group.guarantee.epsilon_of_client) or (stated if isinstance(stated, int) else 0)


# ------------------------------------------------------------------------------------------------------------- in short


def _short(groups: Sequence[Repetitions]) -> Markup:
    if len(groups) == 1:
        return joined(_cards(groups[0]), _stopped(groups))
    measures = [measure for measure in MEASURES if any(group.has(measure.column) for group in groups)]
    headings = ["run", "privacy", *(_marked(measure, groups) for measure in measures), "rounds", "sent up"]
    rows = []
    for group in groups:
        ends = [_end(group, measure) for measure in measures]
        rows.append([group.name, words.headline(group.guarantee), *ends, _rounds(group), _size(group, "bytes_up")])
    caption = "At the end of training" + (", with 95 % intervals of the mean" if _repeated(groups) else "")
    return joined(table(headings, rows, caption), _differences(groups), _stopped(groups))


def _cards(group: Repetitions) -> Markup:
    """A single run's main numbers: (name, number, note)."""
    cards = [("privacy", *words.headline(group.guarantee).partition(": ")[::2])]
    for measure in MEASURES:
        if group.has(measure.column):
            mean, _, limits = _end(group, measure).partition("\n(")
            over = f"95 % interval over {len(group.keys)} seeds: {limits.rstrip(')')}"
            note = over if limits else "on public test rows"
            private = measure.column in private_columns(group.first)
            if measure is MEASURES[0] and group.has(LARGER.column):
                note = f"{note}; the larger class has {_end(group, LARGER)} of them"
            cards.append((measure.words, mean, words.PRIVATE if private else note))
    repeated = f", repeated {len(group.keys)} times" if len(group.keys) > 1 else ""
    cards.append(("rounds", _rounds(group), f"{group.first.config['algorithm']['name']}{repeated}"))
    if clients := _clients(group):
        cards.append(("owners of data", str(clients), f"{_size(group, 'bytes_up')} sent by all of them together"))
    boxes = [
        element("div", element("dt", _capital(name)), element("dd", value, element("small", note)), class_="card")
        for name, value, note in cards
    ]
    return element("dl", boxes, class_="cards")


def _differences(groups: Sequence[Repetitions]) -> Markup:
    """A table of differences to the first, of those that were run with the same seeds."""
    first, rows = groups[0], []
    for other in groups[1:]:
        for measure in MEASURES:
            difference = paired(first, other, measure.column)
            if difference is not None:
                rows.append([other.name, _marked(measure, [other]), *measure.texts(difference.plain(), sign=True)])
    if not rows:
        return Markup("")
    caption = f"Difference to {first.name}, paired by seed ({len(first.keys)} seeds)"
    return table(["run", "measure", "mean difference", "95 % interval"], rows, caption)


def _end(group: Repetitions, measure: Measure) -> str:
    if not group.has(measure.column):
        return numbers.MISSING
    mean, limits = measure.texts(interval(group.last(measure.column)).plain())
    return mean if limits == numbers.MISSING else f"{mean}\n({limits})"


def _marked(measure: Measure, groups: Sequence[Repetitions]) -> str:
    private = any(measure.column in private_columns(group.first) for group in groups)
    return f"{measure.words}\n({words.PRIVATE})" if private else measure.words


def _rounds(group: Repetitions) -> str:
    done = sorted({result.rounds for result in group.results})
    return str(done[0]) if len(done) == 1 else f"{done[0]} to {done[-1]}"


def _size(group: Repetitions, column: str) -> str:
    return numbers.size(float(group.last(column).mean()) if group.has(column) else None)


def _repeated(groups: Sequence[Repetitions]) -> bool:
    return any(len(group.keys) > 1 for group in groups)


def _stopped(groups: Sequence[Repetitions]) -> Markup:
    reasons = {group.name: result.stopped for group in groups for result in group.results if result.stopped}
    notes = [f"{name} stopped early, {why}." for name, why in reasons.items()]
    notes += [f"{group.name}: {each}" for group in groups for each in group.first.remarks]
    return joined(element("p", each) for each in notes)


# -------------------------------------------------------------------------------------------------------------- quality


def _quality(groups: Sequence[Repetitions]) -> Markup:
    """The finished models on test rows: several numbers, since accuracy alone says little of unequal classes."""
    alone = of_parties_alone(dict.fromkeys(name for group in groups for name in group.first.metrics))
    measures = [each for each in (MEASURES[0], *METRICS, *alone) if any(group.has(each.column) for group in groups)]
    private = joined(_private_estimates(group) for group in groups)
    if not measures:
        return private or element("p", "Nothing was measured on test rows or on held-out records.", class_="quiet")
    rows = [[group.name, *(_end(group, measure) for measure in measures)] for group in groups]
    parts = [table(["run", *(_marked(measure, groups) for measure in measures)], rows, "On test rows, at the end")]
    for group in groups:
        if len(group.keys) == 1 and group.has("test_confusion"):
            counts = group.first.metrics["test_confusion"][0]
            names = [f"class {number + 1}" for number in range(len(counts))]
            cells = [[name, *(str(int(each)) for each in row)] for name, row in zip(names, counts, strict=True)]
            headings = ["label", *(f"predicted {name}" for name in names)]
            parts.append(table(headings, cells, f"{group.name}: test rows by label and prediction"))
    return joined(private, parts)


def _private_estimates(group: Repetitions) -> Markup:
    """What noisy counts of held-out records say of the first model: within the budget, so it may be shown."""
    if not group.first.evaluations:
        return Markup("")
    evaluation = group.first.evaluations[0]
    caption = f"{group.name}: on held-out records, by noisy counts"
    rows = table(["measure", "estimate", "95 % interval"], [list(line) for line in evaluation.lines()], caption)
    return joined(rows, element("p", f"{evaluation.about}.", class_="quiet"))


# -------------------------------------------------------------------------------------------------------------- privacy


def _promises(groups: Sequence[Repetitions]) -> Markup:
    """What is promised, one box for each different promise; then what every reader must know, once."""
    boxes: dict[Markup, list[str]] = {}
    exceptions: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        boxes.setdefault(_promise(group.guarantee), []).append(group.name)
        exceptions.setdefault(group.guarantee.not_covered, []).append(group.name)
    shown = sum(len(group.keys) for group in groups)
    caveats = dict.fromkeys(each for group in groups for each in words.caveats(group.guarantee, shown))

    parts = [joined(element("h3", _listed(names)) if len(groups) > 1 else "", box) for box, names in boxes.items()]
    parts += [element("p", each, class_="bad") for each in caveats]
    for not_covered, names in exceptions.items():
        if not_covered:
            whose = f" ({_listed(names)})" if len(names) < len(groups) else ""
            parts.append(element("h3", f"What it does not cover{whose}"))
            parts.append(element("ul", [element("li", f"{_capital(each)}.") for each in not_covered]))
    return joined(parts)


def _promise(guarantee: Guarantee) -> Markup:
    proven = guarantee.epsilon is not None
    strong = proven and not words.promises_little(guarantee)
    opened = {"open": ""} if "party" in guarantee.unit else {}  # where columns are split, only the full text says all
    full = element("details", element("summary", "The statement in full"), element("p", guarantee.text), **opened)
    return element(
        "div",
        element("h3", words.headline(guarantee)),
        [element("p", each) for each in words.meaning(guarantee)],
        full if proven else "",
        class_="good" if strong else "bad",
    )


def _spending_note(groups: Sequence[Repetitions], drawn: Sequence[charts.Chart]) -> Markup:
    note = "ε adds up over rounds; clients that are asked more often spend more."
    if not drawn:
        note = "No run on this page has spent a budget in its rounds, so nothing is drawn."
    elif _repeated(groups):
        note += " Of several repetitions, the one that spent most is shown."
    return element("p", note, class_="quiet")


# --------------------------------------------------------------------------------------------------------------- charts


def _panels(drawn: Sequence[charts.Chart], note: Markup) -> Markup:
    return joined(note, element("div", [_panel(chart) for chart in drawn], class_="panels"))


def _panel(chart: charts.Chart) -> Markup:
    headings, rows = charts.rows_of(chart)
    lines = zip(headings[1:], rows[0][1:], rows[-1][1:], strict=True)
    ends = "; ".join(f"{name}: from {first} to {last}" for name, first, last in lines)
    badge = element("span", words.PRIVATE, class_="badge") if chart.private else ""
    return element(
        "figure",
        element("figcaption", chart.title, badge),
        element("div", id=f"chart-{chart.id}", class_="chart", role="img", aria_label=f"{chart.title}. {ends}."),
        element("details", element("summary", "The numbers"), table(headings, rows, chart.title)),
    )


def _training_notes(groups: Sequence[Repetitions]) -> Markup:
    notes = []
    if _repeated(groups):
        counts = _listed(f"{len(group.keys)} seeds of {group.name}" for group in groups if len(group.keys) > 1)
        notes.append(
            f"Lines are means over {counts}, bands their 95 % intervals by Student's t. They show chance in training, "
            "not in the choice of test rows."
        )
    if any(group.has(column) for group in groups for column in NOT_RELEASED):
        notes.append(
            "The training objective is read off private rows. A simulation may look at it, but no guarantee covers it: "
            "make a page that you give to others with --released-only."
        )
    if any(tested_on_owners(group.first.config) and group.has("test_loss") for group in groups):
        notes.append(
            "Test rows were set aside from the owners' own rows: what is measured on them is exact, and no guarantee "
            "covers it. --released-only leaves it out."
        )
    return joined(element("p", each, class_="quiet") for each in notes)


def _models(groups: Sequence[Repetitions]) -> Markup:
    """By how much each column and level changes a score, of runs that keep a schema."""
    known = [group for group in groups if group.first.schema is not None and group.first.model.ndim == 1]
    tables = [
        table(["column", "for", "change"], [[each.column, each.what, f"{each.change:+.4g}"] for each in effects],
              f"{group.name}: score of {name}")
        for group in known if group.first.model.size for name, effects in group.first.effects().items()
    ]  # fmt: skip
    return joined(element("p", words.EFFECTS), tables) if tables else joined()


# --------------------------------------------------------------------------------------------------------------- repeat


def _repeat(group: Repetitions) -> Iterator[Markup]:
    config = without_folders(group.first.config)
    yield element("h3", group.name)
    if config.get("data", {}).get("source") == "arrays":
        lost = "This run was trained in Python on arrays, which are not kept: train on them with these settings."
        yield element("p", lost)
    else:
        yield element("p", "Save the settings below as config.toml (files of rows next to it) and run:")
        yield element("pre", element("code", "sottovoce run config.toml --out again"))
        if len(group.results) > 1:
            seeds = ", ".join(str(result.config["run"].get("seed")) for result in group.results)
            yield element("p", f"and again with --seed for each of the seeds {seeds}.")
    noise, seed = group.guarantee.noise, config["run"].get("seed")
    if seed is None or (noise and not noise.startswith("simulation")):
        repeatable = "The noise came from the operating system and was not kept: a repetition will have other noise."
    else:
        repeatable = f"Seed {seed}: with the same versions you get the same numbers."
    yield element("p", repeatable)
    yield element("details", element("summary", "Settings"), element("pre", element("code", to_toml(config))))
    if group.folders:
        versions = whole_files.read_json(group.folders[0] / store.VERSIONS)
        listed = table(["what", "version"], [[str(each) for each in pair] for pair in versions.items()], "Made with")
        yield element("details", element("summary", "Versions"), listed)
