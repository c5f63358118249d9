"""The report: it says what the run folders say, nothing in them can act on its reader, and a browser draws it."""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.cli import terminal
from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.core.round import NOT_RELEASED
from sottovoce.experiment import saved, store
from sottovoce.experiment.repetitions import Repetitions, interval, pool
from sottovoce.experiment.run_file import load
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.privacy.guarantee_words import NOT_COVERED
from sottovoce.report import charts as report_charts
from sottovoce.report import page as report
from sottovoce.report import words as report_words
from tests.browser import PROGRAM, WHY_NOT, Page, browser
from tests.cli.test_cli import assert_refused, call
from tests.experiment.test_experiment import tiny_tables, write_csv, write_toml

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;<b>"
SOMEBODY = {"name": "k-of-n", "k": 2}
RUN = tiny_tables()["run"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders: one run, five runs of it with partial participation, and one without privacy."""
    place = tmp_path_factory.mktemp("runs")
    write_csv(place)
    for name, changes in {
        "one": {},
        "five": {"participation": SOMEBODY, "run": RUN | {"runs": 5}},
        "open": {"privacy": {"mode": "none"}, "algorithm": {"name": "fedavg"}},
        "paper": {"privacy": {"mode": "published", "epsilon": 0.5, "delta": 1e-4}},
    }.items():
        store.save(load(write_toml(place, **changes)).train(), place / name)
    return place


def test_a_run_whose_budget_paid_for_no_round_is_shown(place: Path, tmp_path: Path) -> None:
    """Alone, beside another run, and without what is not released; the page says why there is nothing to draw."""
    write_csv(tmp_path)
    settings = load(write_toml(tmp_path, run=RUN | {"ledgers": str(tmp_path / "ledgers")}))
    settings.train()
    spent = settings.train()
    assert spent.rounds == 0
    store.save(spent, tmp_path / "spent")
    for folders in ([tmp_path / "spent"], [tmp_path / "spent", place / "open"]):
        for released_only in (False, True):
            page = report.write(folders, tmp_path / "report.html", released_only=released_only).read_text()
            assert "stopped early" in words_of(page)
            assert words_of(page).count("How training went") == 2  # the link, and the section
    assert "epsilon" not in charts_of(page_of(tmp_path / "spent"))
    assert "spent a budget in its rounds, so nothing is drawn" in words_of(page_of(tmp_path / "spent"))


def page_of(*folders: Path, **options: Any) -> str:
    groups = pool(folders, [saved.load_result(folder) for folder in folders])
    return report.page(groups, **options)


def own_text(page: str) -> str:
    """The page without the scripts."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def charts_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found
    return {chart["id"]: chart for chart in json.loads(found[1])}


def words_of(page: str) -> str:
    class Words(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.said: list[str] = []

        def handle_data(self, data: str) -> None:
            self.said.append(data)

    reader = Words()
    reader.feed(own_text(page))
    return " ".join(" ".join(reader.said).split())


# --------------------------------------------------------------------------------------------------------- what it says


def test_it_says_what_is_promised_and_all_that_is_not_covered(place: Path) -> None:
    result, said = saved.load_result(place / "one"), words_of(page_of(place / "one"))
    assert "Proven: ε = 1, δ = 1e-05 per record" in said
    assert result.guarantee.text in said
    assert len(NOT_COVERED) >= 6
    for each in NOT_COVERED:
        assert f"{each[0].upper()}{each[1:]}." in said
    assert "does not protect the data behind this very run from readers of this page" in said  # the seed is on it
    assert "sottovoce run config.toml" in said
    assert "Seed 1" in said
    for name, version in store.versions().items():
        assert f"{name} {version}" in said


def test_no_number_where_nothing_is_proven(place: Path) -> None:
    for name, headline in (("open", "No privacy"), ("paper", "No proven privacy")):
        page = page_of(place / name)
        said = words_of(page)
        assert headline in said
        assert "Proven: ε" not in said
        assert 'class="good"' not in page
        assert "epsilon" not in charts_of(page)
    claim = saved.load_result(place / "paper").guarantee.text
    assert " ".join(claim.split()) in words_of(page_of(place / "paper"))


def a_guarantee(epsilon: float, delta: float) -> Guarantee:
    return Guarantee("proven", "", epsilon, delta, "one record", "the server", "exact", "simulation", (epsilon,))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_how_often_a_guess_is_right(epsilon: float) -> None:
    """Randomised response meets the bound; the Gaussian mechanism of that (epsilon, delta) stays below it."""
    told = report_words.success_bound(a_guarantee(epsilon, 0.0))
    assert told == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)), rel=1e-14)
    for mu in (0.5, 1.0, 2.0):
        delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        right = stats.norm.cdf(mu / 2)  # the best test between N(0, 1) and N(mu, 1)
        assert right <= report_words.success_bound(a_guarantee(epsilon, float(delta)))


def test_bounds_are_rounded_up() -> None:
    said = " ".join(report_words.meaning(a_guarantee(1.0, 1e-5)))
    assert "at most 73.2 % of the time" in said  # 73.1059
    assert "at most 2.719 times" in said  # 2.71828
    assert "promises little" not in said
    assert "promises little" in " ".join(report_words.meaning(a_guarantee(1000.0, 1e-5)))


def test_bands_are_student_intervals(place: Path) -> None:
    result, chart = saved.load_result(place / "five"), charts_of(page_of(place / "five"))["test_loss"]
    (line,) = chart["lines"]
    values = result.history["test_loss"].reshape(6, 5)
    assert line["x"] == [1, 2, 3, 4, 5, 6]
    low, high = stats.t.interval(0.95, 4, loc=values.mean(axis=1), scale=stats.sem(values, axis=1))
    for name, expected in (("y", values.mean(axis=1)), ("low", low), ("high", high)):
        np.testing.assert_allclose(line[name], expected, rtol=1e-5)
    assert charts_of(page_of(place / "one"))["test_loss"]["lines"][0]["low"] is None


def test_what_clients_spent(place: Path) -> None:
    page = page_of(place / "five")
    result, charts = saved.load_result(place / "five"), charts_of(page)
    most, median, least = (np.array(line["y"]) for line in charts["epsilon"]["lines"])
    assert (most >= median).all()
    assert (median >= least).all()
    assert most[-1] == pytest.approx(result.guarantee.epsilon, rel=1e-5)
    assert least[-1] < most[-1]
    assert charts["epsilon"]["levels"] == [{"y": 1.0, "name": "budget 1"}]
    spent = sorted(result.guarantee.epsilon_of_client, reverse=True)
    np.testing.assert_allclose(charts["clients"]["lines"][0]["y"], spent, rtol=1e-5)
    alone = charts_of(page_of(place / "one"))
    assert [line["name"] for line in alone["epsilon"]["lines"]] == ["every client"]
    assert "clients" not in alone


def test_bytes(place: Path) -> None:
    result, charts = saved.load_result(place / "one"), charts_of(page_of(place / "one"))
    for column in ("bytes_up", "bytes_down"):
        np.testing.assert_allclose(charts[column]["lines"][0]["y"], result.history[column] / 1e6, rtol=1e-5)


def test_the_numbers_are_there_without_a_chart(place: Path) -> None:
    page = page_of(place / "one")
    accuracy = saved.load_result(place / "one").history["test_accuracy"]
    said = words_of(page)
    assert f"1 {accuracy[0]:.2%} 2 {accuracy[1]:.2%}" in said
    for chart in charts_of(page).values():
        drawn = re.search(rf'<div id="chart-{chart["id"]}" class="chart" role="img" aria-label="([^"]+)"', page)
        assert drawn
        assert chart["title"] in drawn[1]


def test_private_columns_are_marked_or_left_out(place: Path, tmp_path: Path) -> None:
    result = saved.load_result(place / "one")
    result.history.columns["objective"] = [7531.0 + step for step in range(6)]  # numbers that are nowhere else
    path = store.save(result, tmp_path / "run")
    page = page_of(path)
    told = [name for name, chart in charts_of(page).items() if chart["private"]]
    assert told == ["test_accuracy", "test_loss", *NOT_RELEASED]  # its test rows are the owners' own
    assert page.count("simulation only, not released") >= 2  # its chart and its number
    assert call("report", path, "--released-only").exit_code == 0
    left = (path / "report.html").read_text()
    assert not {"objective", "test_loss", "test_accuracy"} & charts_of(left).keys()
    assert "simulation only, not released" not in left
    assert "753" in words_of(page)
    assert "753" not in left.replace(library(), "")


def test_test_rows_are_called_public_where_they_are(place: Path, tmp_path: Path) -> None:
    aside = saved.load_result(place / "one")
    mine = "losses and accuracies on test rows: these were set aside from the owners' own rows"
    assert [text for text in aside.guarantee.not_covered if text.startswith(mine)]
    data = {name: value for name, value in aside.config["data"].items() if name not in ("csv", "label", "owner")}
    public = replace(aside, config=aside.config | {"data": data | {"name": "heart"}})
    for result, called in ((aside, False), (public, True)):
        path = store.save(result, tmp_path / f"{called}")
        page = words_of(page_of(path))
        assert ("on public test rows" in page) == called
        assert ("Test rows were set aside from the owners' own" in page) == (not called)
        assert call("report", path, "--released-only").exit_code == 0
        assert ("test_accuracy" in charts_of((path / "report.html").read_text())) == called


def test_folders_of_this_machine_are_not_told(place: Path) -> None:
    page = page_of(place / "one")
    assert str(place) in (place / "one" / store.CONFIG).read_text()
    assert str(place) not in page
    assert 'csv = "rows.csv"' in words_of(page)


def test_runs_that_differ_in_the_seed_share_a_line(place: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in (1, 2, 3)]
    for seed, folder in zip((1, 2, 3), folders, strict=True):
        store.save(load(write_toml(place, run=RUN | {"seed": seed})).train(), folder)
    (line,) = charts_of(page_of(*folders))["test_loss"]["lines"]
    ends = [saved.load_result(folder).history["test_loss"][-1] for folder in folders]
    assert line["y"][-1] == pytest.approx(np.mean(ends), rel=1e-5)
    assert line["high"][-1] == pytest.approx(interval(np.array(ends)).high, rel=1e-5)
    shutil.copytree(folders[0], tmp_path / "copy")
    with pytest.raises(InvalidInput, match=r"same settings and the same seed \(1\)"):
        page_of(folders[0], tmp_path / "copy")


def test_several_runs_lie_over_each_other(place: Path) -> None:
    page = page_of(place / "one", place / "open")
    assert [line["name"] for line in charts_of(page)["test_loss"]["lines"]] == ["dp-admm", "fedavg"]
    assert "<title>Comparison of dp-admm and fedavg</title>" in page
    assert "this page shows 2" in words_of(page)
    same_method = charts_of(page_of(place / "one", place / "five"))["test_loss"]["lines"]
    assert len({line["style"]["on_white"] for line in same_method}) == 2
    assert "<title>Report on &lt;us&gt;</title>" in page_of(place / "one", title="Report on <us>")


def test_a_long_run_is_thinned_out(place: Path) -> None:
    result = saved.load_result(place / "one")
    columns = {name: np.resize(column, 5000).tolist() for name, column in result.history.columns.items()}
    columns |= {"round": list(range(1, 5001)), "run": [0] * 5000, "test_loss": [math.inf] + [0.5] * 4999}
    long = Repetitions("long", (replace(result, history=type(result.history)(columns)),))
    chart = next(chart for chart in report_charts.progress_charts([long]) if chart.id == "test_loss")
    x = chart.lines[0].x
    assert (x[0], x[-1]) == (1, 5000)
    assert len(x) == 300
    assert chart.lines[0].y[0] is None
    assert report_charts.rows_of(chart)[1][0] == ["1", "not finite"]


# -------------------------------------------------------------------------------------------------------- outside input


@pytest.fixture(scope="module")
def hostile(place: Path) -> Path:
    """A page on two run folders whose every text was written by someone who means harm."""
    folders = []
    for seed in (1, 2):
        result = saved.load_result(place / "one")
        config: dict[str, Any] = {name: dict(table) for name, table in result.config.items()}
        config["algorithm"]["name"] = HOSTILE
        config["algorithm"]["rho"] = seed / 10
        config["run"]["name"] = f"{HOSTILE}{seed}"
        config["data"]["csv"] = f"/home/{HOSTILE}"
        fields = dict.fromkeys(("text", "observer", "accountant", "noise"), HOSTILE) | {"unit": f"one record {HOSTILE}"}
        guarantee = replace(result.guarantee, **fields, not_covered=(HOSTILE,))
        folder = place / f"<script>alert({seed})<" / "inside"
        store.save(replace(result, config=config, guarantee=guarantee, stopped=HOSTILE), folder)
        (folder / store.VERSIONS).write_text(json.dumps({HOSTILE: HOSTILE}))
        folders.append(folder)
    path = place / "hostile.html"
    report.write(folders, path, title=HOSTILE)
    return path


def test_text_stays_text(hostile: Path) -> None:
    page = hostile.read_text()
    assert "<script>alert" not in page
    assert "<img" not in own_text(page)
    assert page.count("<script") - len(re.findall(r"<script", library())) == 3  # the numbers, the library, the drawing
    assert charts_of(page)["test_loss"]["lines"][0]["name"].startswith("</script>")
    assert HOSTILE.replace("  ", " ") in words_of(page)


def library() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_nothing_is_fetched(place: Path) -> None:
    page = page_of(place / "one")
    assert page.count(library()) == 1
    assert not re.search(r'(src|href)="(?!#)', own_text(page))
    assert "http" not in own_text(page).replace("http-equiv", "")
    assert "default-src 'none'" in page
    assert len(page) < len(library()) + 200_000


@pytest.mark.parametrize("change", [{"unit": "the whole world"}, {"delta": None}])
def test_half_a_guarantee_is_refused(place: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    shutil.copytree(place / "one", tmp_path / "run")
    path = tmp_path / "run" / store.GUARANTEE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert_refused(call("report", tmp_path / "run"), terminal.BAD_INPUT, store.GUARANTEE, "delta and a known unit")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"round": [3, 2, 1]}, "rounds increasing"),
        ({"run": [0, 1, 0]}, "runs of one round after the other"),
        ({"test_loss": ["a", "b", "c"]}, "must hold numbers"),
        ({"run": None}, "a round and a run in every row"),
    ],
)
def test_an_altered_history_is_refused(place: Path, tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    shutil.copytree(place / "one", tmp_path / "run")
    table = {"run": [0, 0, 0], "round": [1, 2, 3], "test_loss": [0.5, 0.4, 0.3]} | columns
    wanted = {name: column for name, column in table.items() if column is not None}
    parquet.write_table(pa.table(wanted), tmp_path / "run" / store.HISTORY)
    assert_refused(call("report", tmp_path / "run"), terminal.BAD_INPUT, store.HISTORY, said)
    assert not (tmp_path / "run" / "report.html").exists()


# --------------------------------------------------------------------------------------------------------- command line


def test_one_command_one_page(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(place / "one", "all/one")
    shutil.copytree(place / "open", "all/open")
    assert call("report", "all/one", "--quiet").stdout == "all/one/report.html\n"
    said = json.loads(call("report", "all", "--json").stdout)  # a folder of run folders
    assert said["runs"] == ["all/one", "all/open"]
    assert Path(said["page"]).stat().st_size == said["bytes"]
    assert call("report", "all/one", "all/open").stdout.startswith("Saved report.html")
    assert Path("report.html").read_bytes() == Path("all/report.html").read_bytes()  # the same runs, the same page


def test_what_cannot_be_reported(place: Path, tmp_path: Path) -> None:
    assert_refused(call("report", tmp_path / "nowhere"), terminal.MISSING, "no such run folder")
    assert_refused(call("report", tmp_path), terminal.BAD_INPUT, "holds none")
    assert_refused(call("report", place / "one", "--out", tmp_path / "r.txt"), terminal.BAD_INPUT, "*.html")
    (tmp_path / store.CONFIG).write_text("")
    (tmp_path / store.CHECKPOINT).write_text("")
    assert_refused(call("report", tmp_path), terminal.BAD_INPUT, "not finished", "--resume")
    with pytest.raises(MissingData, match="no such run folder"):
        report.run_folders([place / "rows.csv"])


# -------------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip(WHY_NOT)
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


LINES = "[...document.querySelectorAll('.scatterlayer .js-line')].map(line => line.getAttribute('d').length)"
WIDE, PHONE = (1280, 900), (390, 844)


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_draws_it(screen: Page, place: Path, size: tuple[int, int], dark: bool) -> None:
    path = report.write([place / "five", place / "open"], place / "both.html")
    screen.complaints.clear()
    screen.requests.clear()
    screen.show(path, *size, dark)
    charts = charts_of(path.read_text())
    assert screen.complaints == []
    assert screen.requests == [path.resolve().as_uri()]
    assert screen.ask("document.documentElement.dataset.drawn") == str(len(charts))
    drawn = screen.ask(LINES)
    assert len(drawn) >= sum(len(chart["lines"]) for chart in charts.values()) == 14
    assert min(drawn) > 10
    assert screen.ask("document.documentElement.scrollWidth") == size[0]  # nothing sticks out
    widths = screen.ask("[...document.querySelectorAll('.chart .main-svg')].map(svg => svg.clientWidth)")
    assert all(0.3 * size[0] < width <= size[0] for width in widths)
    ground = screen.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
    name = f"report-{'phone' if size == PHONE else 'wide'}-{'dark' if dark else 'light'}.png"
    picture = Path(os.environ.get("SOTTOVOCE_SCREENSHOTS", place)) / name
    picture.write_bytes(screen.picture())
    assert picture.stat().st_size > 20_000  # an empty page of this size has a tenth of that


def test_charts_follow_the_theme(screen: Page, place: Path) -> None:
    path = report.write([place / "one"], place / "theme.html")
    screen.show(path, *WIDE, dark=False)
    colour = "document.querySelector('.scatterlayer .js-line').style.stroke"
    before = screen.ask(colour)
    screen.theme(dark=True)
    after = screen.ask(f"new Promise(done => setTimeout(() => done({colour}), 100))")
    assert (before, after) == ("rgb(0, 114, 178)", "rgb(86, 180, 233)")


def test_hostile_text_does_nothing_in_a_browser(screen: Page, hostile: Path) -> None:
    screen.complaints.clear()
    screen.requests.clear()
    screen.show(hostile, *WIDE, dark=False)
    assert screen.complaints == []
    assert screen.requests == [hostile.resolve().as_uri()]
    assert screen.ask("document.querySelectorAll('img').length") == 0
    assert HOSTILE in screen.ask("document.querySelector('h1').textContent")
    assert "</script>" in screen.ask("document.querySelector('.legendtext').textContent")


def test_the_browser_would_have_told(screen: Page, tmp_path: Path) -> None:
    """What the tests above rely on: a page that errs, asks or fetches is noticed."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<script>console.error('no'); setTimeout(() => { throw Error('no') }); alert(1)</script><img src=x>"
    )
    screen.complaints.clear()
    screen.show(path, *WIDE, dark=False)
    screen.ask("new Promise(done => setTimeout(done, 100))")
    assert len(screen.complaints) >= 3
    assert screen.requests[-1].endswith("/x")
    screen.complaints.clear()
