"""TOML <-> dataclasses, and rows from a user's own CSV file."""

import itertools
import re
import subprocess
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.check import InvalidInput, MissingData, NoGuarantee
from sottovoce.core.contract import VerticalAlgorithm
from sottovoce.core.participation import PARTICIPATION
from sottovoce.experiment import run_file, source
from sottovoce.experiment.run_file import MODES, build, load
from sottovoce.experiment.source import Data
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.problems import data as datasets
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.partition import PARTITIONS
from sottovoce.problems.penalties import PENALTIES
from sottovoce.rules import Rule, constant_entry

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*nothing is stated about the sizes")  # rows here are short


def write_csv(folder: Path, rows: int = 60, seed: int = 3, bad: dict[int, str] | None = None) -> Path:
    """A small CSV of three owners, two features in the unit ball and a label "no" or "yes"; `bad` replaces lines."""
    rng = np.random.default_rng(seed)
    lines = ["age,owner,outcome,income"]
    for row in range(rows):
        a, b = rng.uniform(-0.7, 0.7, size=2).tolist()
        answer = "yes" if a + 0.3 * b + rng.normal(0, 0.3) > 0 else "no"
        lines.append(f"{a!r},{'abc'[row % 3]},{answer},{b!r}")
    for number, line in (bad or {}).items():
        lines[number - 1] = line
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny_tables(**changes: dict[str, Any]) -> Tables:
    """A run on that file, noise on; `changes` replace whole tables."""
    tables = {
        "data": {
            "csv": "rows.csv",
            "label": "outcome",
            "owner": "owner",
            "test": 0.25,
            "row_bound": 1.0,
            "shorten": True,
        },
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 0.01},
        "algorithm": {"name": "dp-admm", "rho": 0.1},
        "privacy": {"mode": "proven", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0},
        "run": {"rounds": 6, "seed": 1, "engine": "numpy"},
    }
    return {name: table for name, table in (tables | changes).items() if table is not None}


def write_toml(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.toml"
    path.write_text(to_toml(tiny_tables(**changes)))
    return path


def rows_of(data: Data) -> Federation:
    return data.federation.as_rows("test", "is for rows")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_csv(tmp_path)
    return tmp_path


# ----------------------------------------------------------------------------------------------------------- round trip

LOSS_AND_PENALTY = {"classes": 3, "width": 0.5, "lam": 0.25, "l1": 0.1, "l2": 0.2, "low": -1.0, "radius": 2.0}
WHO = {"k": 2, "within": 2, "p": [0.5, 0.25, 1.0], "sets": [[0, 1], [], [2]]}
METHOD = {"rho": 0.3, "c_w": 3.0, "theorem": 4, "penalty_at": "server", "step": 0.2, "batch": 0.5, "local_steps": 2}
MODE = {"epsilon": 0.5, "delta": 1e-4, "clip": 2.0, "relation": "add-remove", "unit": "record", "participations": 7}
SAMPLES: dict[str, Any] = LOSS_AND_PENALTY | {"high": float("inf")} | WHO | METHOD | MODE


def with_options(kind: Any) -> dict[str, Any]:
    names = kind.__dataclass_fields__
    return {name: SAMPLES[name] for name in names if name in SAMPLES}


ROWS = {name: kind for name, kind in ALGORITHMS.items() if not issubclass(kind, VerticalAlgorithm)}
SPLIT = {"csv": "rows.csv", "label": "outcome", "owner": "owner", "test": 0.25, "split": [1, 1]}
RECORD = {"mode": "proven", "epsilon": 1.0, "delta": 1e-5, "unit": "record", "bound": 5.0, "row_bound": 1.0,
          "score_bound": 2.0}  # fmt: skip
CASES = [
    *[{"algorithm": {"name": name, **with_options(kind)}} for name, kind in ROWS.items()],
    {"data": SPLIT, "algorithm": {"name": "admm-sharing", "rho": 0.5, "proximal": "auto"}, "privacy": RECORD},
    {
        "data": SPLIT,
        "algorithm": {"name": "admm-sharing", "rho": "auto"},
        "privacy": {"mode": "published", "epsilon": 1.0},
    },
    {"data": SPLIT, "algorithm": {"name": "fdml", "step": 0.2, "batch": 8}, "privacy": {"mode": "none"}},
    *[
        {"objective": {"loss": name, **with_options(kind), "scale": "sum"}}
        for name, kind in LOSSES.items()
        if not name.startswith("weighted")
    ],
    {"objective": {"loss": "weighted-logistic", "class_weight": [1.0, 5.0]}},
    {"objective": {"loss": "weighted-softmax", "classes": 3, "class_weight": [1.0, 5.0, 0.5]}},
    *[{"objective": {"loss": "logistic", "penalty": name, **with_options(kind)}} for name, kind in PENALTIES.items()],
    *[{"participation": {"name": name, **with_options(kind)}} for name, kind in PARTICIPATION.items()],
    *[{"privacy": {"mode": name, **with_options(kind)}} for name, kind in MODES["rows"].items()],
    *[
        {"data": {"csv": "rows.csv", "label": "outcome", "owner": "owner", "clients": 4, "partition": name, **options}}
        for name, options in {
            "iid": {},
            "dirichlet": {"alpha": 0.5, "at_least": 2},
            "lognormal": {"spread": 0.3},
            "random-cuts": {},
        }.items()
    ],
]


def test_every_partition_is_in_the_cases() -> None:
    assert set(PARTITIONS) <= {case["data"].get("partition") for case in CASES if "data" in case}


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_what_was_built_is_described_and_built_again(folder: Path, changes: dict[str, Any]) -> None:
    if changes.get("objective", {}).get("loss") in ("squared", "huber"):
        changes = {**changes, "data": {"csv": "rows.csv", "label": "income", "owner": "owner"}}
        write_csv(folder)
        path = folder / "rows.csv"
        path.write_text(path.read_text().replace("yes", "1").replace("no", "0"))
    first = load(write_toml(folder, **changes))
    written = to_toml(first.described())
    (folder / "elsewhere").mkdir()
    again = folder / "elsewhere" / "config.toml"
    again.write_text(written)
    second = load(again)
    for name in ("task", "settings", "partition_options"):
        assert getattr(second, name) == getattr(first, name), name
    assert to_toml(second.described()) == written
    one, other = first.data().federation.data(), second.data().federation.data()
    for (X, y), (X_again, y_again) in zip(one, other, strict=True):
        np.testing.assert_array_equal(X_again, X)
        np.testing.assert_array_equal(y_again, y)
    for table, given_keys in changes.items():  # nothing that was said got lost
        for key, value in given_keys.items():
            if key != "csv":
                assert first.described()[table][key] == value, key


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(text, st.dictionaries(text, values, max_size=4), max_size=4))
def test_toml_is_read_back_as_it_was(tables: dict[str, dict[str, Any]]) -> None:
    read = tomllib.loads(to_toml(tables))
    assert read == tables
    assert repr(read) == repr(tables)  # 1 is not 1.0, True is not 1


def test_a_value_that_toml_has_no_word_for_is_refused() -> None:
    with pytest.raises(InvalidInput, match="got None"):
        to_toml({"run": {"seed": None}})


def test_numbers_of_numpy_are_described_as_plain_ones(folder: Path) -> None:
    result = sv.train(
        sv.DPADMM(rho=np.float64(0.5)),
        load(write_toml(folder)).data().federation,
        sv.Objective(sv.Logistic(), penalty=sv.L2(np.float64(0.1))),
        rounds=np.int64(1),  # type: ignore[arg-type]
        privacy=sv.NoPrivacy(),
        participation=PARTICIPATION["bernoulli"](np.array([0.5, 1.0, 1.0])),  # type: ignore[call-arg]
        seed=1,
        engine="numpy",
    )
    assert type(result.config["objective"]["lam"]) is float
    assert type(result.config["algorithm"]["rho"]) is float
    tables = tomllib.loads(to_toml(result.config))
    assert (tables["objective"]["lam"], tables["algorithm"]["rho"]) == (0.1, 0.5)
    assert tables["participation"]["p"] == [0.5, 1.0, 1.0]
    assert tables["run"]["rounds"] == 1


def test_describing_needs_neither_training_nor_files() -> None:
    listed = "sorted(m for m in sys.modules if m.startswith('sottovoce.experiment.'))"
    code = f"import sys, sottovoce.experiment.tables; print({listed})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['sottovoce.experiment.tables', 'sottovoce.experiment.task']"


def test_the_options_of_losses_and_penalties_share_a_table_without_a_clash() -> None:
    own = {"loss", "penalty", "scale"}
    for loss in LOSSES.values():
        for penalty in PENALTIES.values():
            names = [set(kind.__dataclass_fields__) for kind in (loss, penalty)]  # type: ignore[attr-defined]
            assert not names[0] & names[1]
            assert not own & (names[0] | names[1])


def test_the_example_is_the_face_of_the_library() -> None:
    example = load(ROOT / "examples" / "adult.toml")
    assert isinstance(example.task.algorithm, sv.DPADMM)
    assert example.task.privacy == sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0)
    assert example.task.objective == sv.Objective(sv.Logistic(), sv.L2(1e-6), scale="mean", fit_intercept=True)
    assert example.settings.name == "adult"
    federation, test = rows_of(example.data()), example.data().test
    assert (federation.n, federation.X.shape, set(federation.sizes)) == (100, (40_000, 148), {400})
    assert federation.row_bound == 1.0
    assert test is not None
    assert isinstance(test[0], np.ndarray)
    assert test[0].shape == (5222, 148)


def test_a_base_rate_is_for_rows_with_an_intercept(folder: Path) -> None:
    """Named data sets that a public schema encodes have a column for it; other rows get one that is 1."""
    tables = tiny_tables() | {"algorithm": {"name": "auto", "base_rate": 0.3}, "run": {"seed": 1}}
    tables["privacy"] = {"mode": "proven", "epsilon": 0.05, "delta": 1e-4}
    named = build(tables | {"data": {"name": "heart", "partition": "owner"}}, "heart.toml").task.rule
    assert named is not None
    assert named.constant == constant_entry(sv.Schema.bundled("heart")) < 1
    plain = build(tables | {"objective": {"loss": "logistic", "fit_intercept": True}}, "tiny.toml", folder)
    assert plain.task.rule == Rule("auto", 0.3, 1.0)
    assert plain.chosen().task.algorithm.lean == pytest.approx(np.log(0.3 / 0.7), rel=0.1)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------ what is refused

REFUSED = {
    "unknown table": ("[dta]\n", "unknown table 'dta'. Did you mean 'data'?"),
    "a value in place of a table": ("data = 3\n", "data must be a table"),
    "not TOML": ("[data\n", "must be TOML"),
    "nothing": ("", "needs a table [data]"),
}


@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_no_runs(folder: Path, content: str, words: str) -> None:
    path = folder / "tiny.toml"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=re.escape(words)) as refused:
        load(path)
    assert "tiny.toml" in str(refused.value)


DATA = tiny_tables()["data"]
WRONG = {
    "algorithm unknown": ({"algorithm": {"name": "dp-adm"}}, "unknown algorithm 'dp-adm'. Did you mean 'dp-admm'?"),
    "algorithm not text": ({"algorithm": {"name": 3}}, "unknown algorithm 3"),
    "algorithm missing": ({"algorithm": {"rho": 0.1}}, "[algorithm]: needs name = one of auto, admm"),
    "key unknown": ({"algorithm": {"name": "admm", "roh": 1.0}}, "[algorithm]: unknown key 'roh'. Did you mean 'rho'?"),
    "rho negative": ({"algorithm": {"name": "dp-admm", "rho": -1.0}}, "rho must be > 0, got -1.0"),
    "rho text": ({"algorithm": {"name": "admm", "rho": "big"}}, "[algorithm]: rho must be a number, got 'big'"),
    "rho a truth value": ({"algorithm": {"name": "admm", "rho": True}}, "rho must be a number, got True"),
    "a fraction of a step": (
        {"algorithm": {"name": "fedavg", "local_steps": 1.5}},
        "local_steps must be a whole number, got 1.5",
    ),
    "theorem 5": ({"algorithm": {"name": "dp-admm", "theorem": 5}}, "unknown theorem 5. Known: auto, 3, 4"),
    "loss unknown": ({"objective": {"loss": "logistik"}}, "unknown loss 'logistik'. Did you mean 'logistic'?"),
    "penalty unknown": ({"objective": {"loss": "logistic", "penalty": "l3"}}, "unknown penalty 'l3'"),
    "penalty incomplete": ({"objective": {"loss": "logistic", "penalty": "l2"}}, "[objective]: l2 needs lam = ..."),
    "an option of another": ({"objective": {"loss": "logistic", "width": 1.0}}, "[objective]: unknown key 'width'"),
    "scale unknown": ({"objective": {"loss": "logistic", "scale": "men"}}, "unknown scale 'men'. Did you mean 'mean'?"),
    "mode unknown": ({"privacy": {"mode": "prove"}}, "unknown mode 'prove'. Did you mean 'proven'?"),
    "no word on privacy": ({"privacy": None}, "needs a table [privacy]"),
    "epsilon 0": (
        {"privacy": {"mode": "proven", "epsilon": 0, "delta": 1e-5, "clip": 1.0}},
        "[privacy]: Proven: epsilon must be > 0, got 0",
    ),
    "delta 1": (
        {"privacy": {"mode": "proven", "epsilon": 1, "delta": 1.0, "clip": 1.0}},
        "delta must lie in (0, 1), got 1.0",
    ),
    "participation incomplete": ({"participation": {"name": "k-of-n"}}, "[participation]: k-of-n needs k = ..."),
    "p as text": ({"participation": {"name": "bernoulli", "p": "half"}}, "p must be a number or a list, got 'half'"),
    "a schedule of nobody": ({"participation": {"name": "schedule", "sets": []}}, "[participation]: asks nobody in 6"),
    "a schedule of empty sets": (
        {"participation": {"name": "schedule", "sets": [[], []]}},
        "[participation]: asks nob",
    ),
    "k 0": ({"participation": {"name": "k-of-n", "k": 0}}, "[participation]: KOfN: k must be a whole number >= 1"),
    "seed -1": ({"run": {"rounds": 1, "seed": -1}}, "tiny.toml, [run]: seed must be a whole number >= 0, got -1"),
    "clients 0": ({"data": {**DATA, "clients": 0}}, "tiny.toml, [data]: clients must be a whole number >= 1, got 0"),
    "no rounds": ({"run": {"seed": 1}}, "[run]: needs rounds, as the constants of dp-admm are given"),
    "a base rate without an intercept": (
        {"algorithm": {"name": "auto", "base_rate": 0.3}},
        "[algorithm]: a base_rate needs rows with a constant column. Give a [schema], whose rows have one",
    ),
    "a base rate that is none": ({"algorithm": {"name": "auto", "base_rate": 7.0}}, "base_rate must lie in (0, 1)"),
    "a number that follows": ({"algorithm": {"name": "auto", "constant": 0.1}}, "[algorithm]: unknown key 'constant'"),
    "rounds in the wrong table": (
        {"algorithm": {"name": "auto", "most": 3}},
        "[algorithm]: unknown key 'most'. Known: name, base_rate",
    ),
    "rounds below 0": ({"algorithm": {"name": "auto"}, "run": {"rounds": -2}}, "rounds must be a whole number >= 0"),
    "rounds 0": ({"run": {"rounds": 0}}, "rounds must be a whole number >= 1, got 0"),
    "engine unknown": ({"run": {"rounds": 1, "engine": "nunpy"}}, "unknown engine 'nunpy'. Did you mean 'numpy'?"),
    "a name that leaves the folder": ({"run": {"rounds": 1, "name": "../x"}}, "name must be letters"),
    "data unknown": ({"data": {"name": "adlut"}}, "unknown data set 'adlut'. Did you mean 'adult'?"),
    "no data": ({"data": {"clients": 3}}, "give either name = a data set or csv = a file"),
    "data twice": ({"data": {**DATA, "name": "adult"}}, "give either name = a data set or csv = a file"),
    "loader's option unknown": ({"data": {"name": "adult", "encodin": "x"}}, "unknown key 'encodin'. Did you mean"),
    "partition unknown": ({"data": {**DATA, "partition": "idd"}}, "unknown partition 'idd'. Did you mean 'iid'?"),
    "an option of another partition": ({"data": {**DATA, "partition": "iid", "alpha": 1.0}}, "unknown key 'alpha'"),
    "csv without label": ({"data": {"csv": "rows.csv", "clients": 3}}, "csv needs label"),
    "label for a data set": ({"data": {"name": "adult", "label": "x"}}, "label goes with csv"),
    "owners and clients": ({"data": {**DATA, "partition": "owner", "clients": 3}}, "clients follows from the owners"),
    "arrays": ({"data": {"source": "arrays"}}, "trained on arrays given in Python"),
    "shorten to what": ({"data": {"csv": "x", "label": "y", "shorten": True}}, "shorten needs row_bound"),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_what_a_file_may_not_say(folder: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)) as refused:
        load(write_toml(folder, **changes))
    said = str(refused.value)
    assert said.startswith("tiny.toml")
    assert "\n" not in said


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="--resume"):
        load(tmp_path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"[data]\nname = '\xff'\n")
    with pytest.raises(InvalidInput, match="must be TOML"):
        load(path)


# ---------------------------------------------------------------------------------------------------------------- seeds


def test_without_a_seed_a_fresh_one_is_drawn_and_written_nowhere(folder: Path) -> None:
    todo = load(write_toml(folder, run={"rounds": 1}))
    first, second = todo.train(), todo.train()
    assert not np.array_equal(first.model, second.model)
    assert "seed" not in todo.described()["run"]
    assert "seed" not in first.config["run"]


def test_keys_of_the_run_can_be_overridden(folder: Path) -> None:
    changed = load(write_toml(folder), rounds=2, seed=9)
    assert (changed.settings.rounds, changed.settings.seed) == (2, 9)
    with pytest.raises(InvalidInput, match="rounds must be"):
        load(write_toml(folder), rounds=-2)


# ------------------------------------------------------------------------------------------------------------ CSV files


def test_rows_of_a_csv_go_to_their_owners(folder: Path) -> None:
    data = load(write_toml(folder, data={"csv": "rows.csv", "label": "outcome", "owner": "owner"})).data()
    assert data.federation.names == ("a", "b", "c")
    assert data.federation.sizes.tolist() == [20, 20, 20]
    assert data.test is None
    assert data.labels == ("no", "yes")
    lines = [line.split(",") for line in (folder / "rows.csv").read_text().splitlines()[1:]]
    of_b = [line for line in lines if line[1] == "b"]
    np.testing.assert_array_equal(rows_of(data).X[20:40], [[float(line[0]), float(line[3])] for line in of_b])
    np.testing.assert_array_equal(rows_of(data).y[20:40], [1.0 if line[2] == "yes" else -1.0 for line in of_b])


def test_ranges_scale_the_columns_of_a_csv(folder: Path) -> None:
    plain = {"csv": "rows.csv", "label": "outcome", "owner": "owner"}
    raw = rows_of(load(write_toml(folder, data=plain)).data())
    names = (folder / "rows.csv").read_text().splitlines()[0].split(",")
    features = [name for name in names if name not in ("outcome", "owner")]
    ranges = {name: [-1, 3] for name in features}
    scaled = rows_of(load(write_toml(folder, data={**plain, "ranges": ranges})).data())
    np.testing.assert_allclose(scaled.X, (np.clip(raw.X, -1, 3) - 1) / 2, atol=1e-15)
    assert scaled.row_bound == pytest.approx(np.sqrt(len(features)))
    with pytest.raises(InvalidInput, match=f"there is none for '{features[-1]}'"):
        load(write_toml(folder, data={**plain, "ranges": {features[0]: [0, 1]}})).data()
    with pytest.raises(InvalidInput, match="column with a range"):
        load(write_toml(folder, data={**plain, "ranges": {**ranges, "shoe": [0, 1]}})).data()
    with pytest.raises(InvalidInput, match="ranges goes with csv"):
        load(write_toml(folder, data={"name": "adult", "clients": 3, "ranges": ranges}))


@pytest.mark.filterwarnings("error")
def test_what_is_not_stated_of_sizes_is_said_whatever_the_rows_hold(folder: Path) -> None:
    """A warning that came with large numbers alone would tell of private rows."""
    bare = {name: value for name, value in DATA.items() if name not in ("row_bound", "shorten")}
    lines = [line.split(",") for line in (folder / "rows.csv").read_text().split()]
    for size in (0.01, 1, 100):
        sized = [lines[0]] + [[f"{size * float(age):.5f}", *others] for age, *others in lines[1:]]
        (folder / "rows.csv").write_text("\n".join(map(",".join, sized)))
        with pytest.warns(UserWarning, match=r"tiny.toml, \[data\]: nothing is stated about the sizes .*ranges = "):
            load(write_toml(folder, data=bare)).data()
        # warnings are errors: none here
        load(write_toml(folder, data={**bare, "ranges": {"age": [-70, 70], "income": [-1, 1]}})).data()
        load(write_toml(folder, data={**bare, "row_bound": 1000.0})).data()
        load(write_toml(folder, data=bare, privacy={"mode": "none"})).data()


def test_without_owners_a_csv_is_shared_out(folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_text(re.sub(r",[abc],", ",7,", path.read_text()))
    shared = {"csv": "rows.csv", "label": "outcome", "clients": 5}
    federation = rows_of(load(write_toml(folder, data=shared)).data())
    assert (federation.n, federation.X.shape) == (5, (60, 3))
    with pytest.raises(InvalidInput, match=r"no owner of their own\. Give \[data\] owner ="):
        load(write_toml(folder, data={"csv": "rows.csv", "label": "outcome"})).data()
    with pytest.raises(InvalidInput, match="'iid' needs clients"):
        load(write_toml(folder, data={"csv": "rows.csv", "label": "outcome", "partition": "iid"})).data()


def test_a_test_part_and_rows_no_longer_than_promised(folder: Path) -> None:
    table = {**DATA, "row_bound": 0.5}
    data = load(write_toml(folder, data=table)).data()
    assert data.test is not None
    assert (len(rows_of(data).X), len(data.test[0])) == (45, 15)
    plain = load(write_toml(folder, data={**DATA, "row_bound": 5.0})).data()
    assert plain.test is not None
    for short, long in ((rows_of(data).X, rows_of(plain).X), (data.test[0], plain.test[0])):
        assert isinstance(short, np.ndarray)
        assert isinstance(long, np.ndarray)
        lengths, before = np.linalg.norm(short, axis=1), np.linalg.norm(long, axis=1)
        assert lengths.max() <= 0.5
        np.testing.assert_allclose(lengths, np.minimum(before, 0.5), rtol=1e-12)
        np.testing.assert_allclose(short * before[:, None], long * lengths[:, None], rtol=1e-12)
    assert data.federation.row_bound == 0.5
    promised = r"^tiny.toml, \[data\]: .*row_bound promises.*: \[data\] row_bound = 0.5, shorten = true$"
    with pytest.raises(InvalidInput, match=promised):
        load(write_toml(folder, data={**table, "shorten": False})).data()


def relabelled(folder: Path, yes: str, no: str, third: str = "") -> None:
    path = folder / "rows.csv"
    content = path.read_text().replace("yes", yes).replace("no", no)
    lines = content.splitlines()
    if third:
        lines[-1] = lines[-1].replace(f",{yes},", f",{third},").replace(f",{no},", f",{third},")
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("yes", "no", "order"),
    [
        ("1", "0", ("0", "1")),
        ("1.0", "-1", ("-1", "1")),
        ("9", "10", ("9", "10")),
        (">50K", "<=50K", ("<=50K", ">50K")),
    ],
)
def test_two_labels_become_minus_and_plus_one_in_order(folder: Path, yes: str, no: str, order: tuple[str, str]) -> None:
    before = load(write_toml(folder)).data().federation.y
    relabelled(folder, yes, no)
    todo = load(write_toml(folder))
    data = todo.data()
    assert data.labels == order
    assert todo.described()["data"]["labels"] == list(order)
    same = order[1] in (yes, "1")
    np.testing.assert_array_equal(data.federation.y, before if same else -before)


def test_the_order_of_labels_can_be_given(folder: Path) -> None:
    before = load(write_toml(folder)).data().federation.y
    turned = load(write_toml(folder, data={**DATA, "labels": ["yes", "no"]})).data()
    np.testing.assert_array_equal(turned.federation.y, -before)
    with pytest.raises(
        InvalidInput,
        match=r"must hold the labels \['maybe', 'no'\], and row \d+ below the header has another \(\d+ such rows\)",
    ):
        load(write_toml(folder, data={**DATA, "labels": ["maybe", "no"]})).data()


def test_labels_that_were_found_and_not_declared_are_not_covered(folder: Path) -> None:
    found = load(write_toml(folder))
    saved = build(found.described(), "config.toml")  # which names the labels, as a run that is resumed reads them
    declared = load(write_toml(folder, data={**DATA, "labels": ["no", "yes"]}))
    said = [
        any("read off the private labels" in text for text in each.train().guarantee.not_covered)
        for each in (found, saved, declared)
    ]
    assert said == [True, True, False]
    assert "labels = [...] in a run file" in str(found.train().guarantee)


def test_no_error_of_a_csv_quotes_an_entry(folder: Path) -> None:
    """Messages travel further than rows do."""
    named = {**DATA, "labels": ["no", "yes"]}
    squared = {"loss": "squared"}
    for line, changes in (
        ("HIV positive Anna Rossi,a,no,1", {}),
        ("1,a,HIV positive Anna Rossi,1", {"data": named}),
        ("1,a,HIV positive Anna Rossi,1", {}),
        ("1,a,HIV positive Anna Rossi,1", {"objective": squared}),
    ):
        write_csv(folder, bad={5: line})
        with pytest.raises(InvalidInput, match=r"rows\.csv, (line 5, )?column '(age|outcome)': must") as error:
            load(write_toml(folder, **changes)).data()
        assert "Rossi" not in str(error.value)
    write_csv(folder, bad={1: "Anna Rossi,HIV,1871,3"})  # no header
    with pytest.raises(InvalidInput, match="the first line must name the columns") as error:
        load(write_toml(folder)).data()
    assert "Rossi" not in str(error.value)


def test_test_rows_of_the_owners_are_not_covered(folder: Path) -> None:
    words = "losses and accuracies on test rows: these were set aside from the owners' own rows"
    without = {name: value for name, value in DATA.items() if name != "test"}
    for data, said in ((DATA, True), (without, False)):
        guarantee = load(write_toml(folder, data=data)).train().guarantee
        assert any(text.startswith(words) for text in guarantee.not_covered) == said
        assert (words in str(guarantee)) == said


def test_softmax_numbers_its_classes(folder: Path) -> None:
    relabelled(folder, "2", "10", third="1.5")
    table = {"loss": "softmax", "classes": 3}
    data = load(write_toml(folder, objective=table, data={**DATA, "test": 1})).data()
    assert data.labels == ("1.5", "2", "10")
    assert set(data.federation.y) <= {0.0, 1.0, 2.0}
    with pytest.raises(InvalidInput, match="must hold at most 2 classes for the softmax loss, got 3"):
        load(write_toml(folder, objective={"loss": "softmax", "classes": 2})).data()


CSV_FAULTS: dict[str, tuple[dict[int, str], dict[str, Any], str]] = {
    "not a number": ({5: "much,a,no,1"}, {}, "rows.csv, line 5, column 'age': must be a finite number (1 such"),
    "nothing": ({5: "1,a,no,"}, {}, "rows.csv, line 5, column 'income': must be a finite number (1 such"),
    "NaN": ({7: "nan,a,no,1"}, {}, "line 7, column 'age': must be a finite number (1 such entries)"),
    "infinite": ({7: "1,a,no,inf"}, {}, "line 7, column 'income': must be a finite number (1 such"),
    "ragged": ({4: "1,a,no"}, {}, "rows.csv, line 4: must have 4 fields, like the header, got 3"),
    "no such label": ({}, {"label": "outcom"}, "unknown column 'outcom'. Did you mean 'outcome'?"),
    "no such owner": ({}, {"owner": "owners"}, "unknown column 'owners'. Did you mean 'owner'?"),
    "twice": ({1: "age,owner,outcome,age"}, {}, "column names must be distinct"),
    "no owner": (
        {5: "1,,no,1", 8: "1, ,no,1"},
        {},
        "rows.csv, line 5, column 'owner': must have a value in every row (2 such entries)",
    ),
    "owner NaN": ({5: "1,NaN,no,1"}, {}, "rows.csv, line 5, column 'owner': must have a value in every row (1 such"),
    "no label": (
        {6: "1,a,,1"},
        {},
        "line 6, column 'outcome': must have a value in every row (1 such entries)",
    ),
    "label nan": (
        {6: "1,a,nan,1"},
        {},
        "rows.csv, line 6, column 'outcome': must have a value in every row (1 such",
    ),
    "three classes": ({3: "1,a,maybe,1"}, {}, "column 'outcome': must hold two classes for the logistic loss, got 3"),
    "semicolons": ({1: "age;owner;outcome;income"}, {}, "rows.csv: fields must be separated by commas"),
    "owner not said": ({}, {"owner": "age"}, "leave it out, or name it in label = or owner = if it holds labels or"),
    "label not said": ({}, {"label": "income"}, "column 'outcome': must be a finite number (60 such entries). Make"),
    "no header": ({1: "0.5,a,no,1.871"}, {}, "rows.csv: the first line must name the columns, 'outcome' among them"),
    "an unbalanced quote": ({3: '"1,a,no,1'}, {}, "must be a CSV file"),
}


@pytest.mark.parametrize(("bad", "table", "words"), CSV_FAULTS.values(), ids=CSV_FAULTS)
def test_what_a_csv_may_not_hold(tmp_path: Path, bad: dict[int, str], table: dict[str, Any], words: str) -> None:
    write_csv(tmp_path, bad=bad)
    with pytest.raises(InvalidInput, match=re.escape(words)) as refused:
        load(write_toml(tmp_path, data={**DATA, **table})).data()
    assert str(refused.value).startswith("tiny.toml, [data]: ")
    assert "rows.csv" in str(refused.value)
    assert "\n" not in str(refused.value)


ROWS_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "test too large": ({**DATA, "test": 60}, "split: test must leave at least one of 60 rows on either side, got 60"),
    "too many clients": ({**DATA, "clients": 46, "partition": "iid"}, "iid: clients must be <= rows = 45"),
    "no clients": ({**DATA, "partition": "iid"}, "partition 'iid' needs clients"),
    "encoding": ({"name": "adult", "encoding": "one-hit", "clients": 2}, "adult: unknown encoding 'one-hit'. Did you"),
}


@pytest.mark.parametrize(("table", "words"), ROWS_FAULTS.values(), ids=ROWS_FAULTS)
def test_what_only_the_rows_show_names_the_file_and_the_table(folder: Path, table: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"tiny.toml, [data]: {words}")):
        load(write_toml(folder, data=table)).data()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "k-of-n", "k": 4}, "KOfN: k must be at most the number of clients (3), got 4"),
        ({"name": "schedule", "sets": [[0], [1], [3]]}, "Schedule: round 3 must name clients 0..2, got [3]"),
    ],
)
def test_a_rule_that_does_not_fit_the_clients_is_refused_before_round_1(
    folder: Path, table: dict[str, Any], words: str
) -> None:
    rounds: list[int] = []
    with pytest.raises(InvalidInput, match=re.escape(f"tiny.toml, [participation]: {words}")):
        load(write_toml(folder, participation=table)).train(after_round=lambda checkpoint: rounds.append(checkpoint.k))
    assert rounds == []


def test_parts_that_do_not_fit_together_name_the_file(folder: Path) -> None:
    name = next(name for name, kind in ALGORITHMS.items() if "published" not in kind.modes)
    with pytest.raises(NoGuarantee, match=rf"^tiny\.toml: {name}: has no 'published' variant"):
        load(write_toml(folder, algorithm={"name": name}, privacy={"mode": "published", "epsilon": 1.0})).train()


def test_an_owner_without_training_rows_is_not_dropped_in_silence(tmp_path: Path) -> None:
    _, aside = datasets.split_rows(60, 0.25, 0)
    write_csv(tmp_path, bad={int(aside[0]) + 2: "0.1,lonely,no,0.1"})
    way_out = "Give a smaller test, or leave the rows of that owner out"
    words = f"tiny.toml, [data]: test takes all rows of owner 'lonely', who would have none to train on. {way_out}"
    with pytest.raises(InvalidInput, match=re.escape(words)):
        load(write_toml(tmp_path)).data()
    assert load(write_toml(tmp_path, data={**DATA, "clients": 2, "partition": "iid"})).data().federation.n == 2
    kept = load(write_toml(tmp_path, data={**DATA, "seed": _seed_that_keeps(int(aside[0]))})).data()
    assert "lonely" in kept.federation.names


def _seed_that_keeps(row: int) -> int:
    return next(seed for seed in range(100) if row in datasets.split_rows(60, 0.25, seed)[0])


def test_known_keys_are_named_in_the_order_they_are_declared(folder: Path) -> None:
    declared = [*(field.name for field in fields(source.Source))]
    with pytest.raises(InvalidInput, match=re.escape(f"Known: {', '.join(declared)}, alpha, at_least")):
        load(write_toml(folder, data={**DATA, "partition": "dirichlet", "alpha": 1.0, "zzzzzz": 1}))


def test_one_class_only(folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_text(path.read_text().replace("yes", "no"))
    with pytest.raises(InvalidInput, match=re.escape("'outcome': holds one class only; two are needed")):
        load(write_toml(folder)).data()


def test_labels_of_a_regression_must_be_numbers(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="column 'outcome': must hold finite numbers for this loss, and row 1 below"):
        load(write_toml(folder, objective={"loss": "squared"})).data()


def test_csv_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    todo = write_toml(tmp_path)
    with pytest.raises(MissingData, match=r"^tiny\.toml, \[data\]: .*rows\.csv: there is no such file"):
        load(todo).data()
    for content, words in ((b"", "needs a header"), (b"a,b\n", "needs a header and"), (b"a\n\xff\n", "UTF-8")):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            load(todo).data()
    path.unlink()
    path.mkdir()
    with pytest.raises(MissingData, match="cannot be read"):
        load(todo).data()


# ------------------------------------------------------------------------------------------------------ named data sets


def test_a_named_set_brings_its_owners_and_its_test_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), np.tile([1.0, -1.0], 6)
    groups = np.array(["Basel", "Zug", "Bern"] * 4)
    set_ = datasets.Dataset("heart", X, y, ("a", "b", "c"), "", "", test=(X[:4], y[:4]), groups=groups, row_bound=9.0)
    monkeypatch.setattr(datasets, "load", lambda name, **options: set_)
    data = build(tiny_tables(data={"name": "heart"}), "x.toml").data()
    assert data.federation.names == ("Basel", "Bern", "Zug")
    assert data.federation.row_bound == 9.0
    assert data.test is not None
    np.testing.assert_array_equal(data.test[0], X[:4])
    own = build(tiny_tables(data={"name": "heart", "clients": 2, "test": 2}), "x.toml").data()
    assert (own.federation.n, len(own.federation.X), len(own.test[0])) == (2, 10, 2)  # type: ignore[index]


def test_a_set_without_owners_must_be_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ = datasets.Dataset("adult", np.ones((4, 1)), np.array([1.0, -1.0, 1.0, -1.0]), ("a",), "", "")
    monkeypatch.setattr(datasets, "load", lambda name, **options: set_)
    with pytest.raises(InvalidInput, match=r"adult: rows have no owner of their own\. Give \[data\] clients"):
        build(tiny_tables(data={"name": "adult"}), "x.toml").data()


# ------------------------------------------------------------------------------------------------------------- training


def test_an_experiment_is_the_same_run_as_the_call(folder: Path) -> None:
    todo = load(write_toml(folder))
    data = todo.data()
    result = todo.train()
    same = sv.train(
        sv.DPADMM(rho=0.1),
        data.federation,
        sv.Objective(sv.Logistic(), penalty=sv.L2(0.01), scale="records"),
        rounds=6,
        privacy=sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0),
        seed=1,
        test=data.test,
        engine="numpy",
    )
    np.testing.assert_array_equal(result.model, same.model)
    assert result.config == todo.described()


@pytest.mark.parametrize("algorithm", [None, {"name": "auto"}, {"name": "dp-sgd"}])
def test_what_a_rule_chooses_is_written_out_and_read_back(folder: Path, algorithm: dict[str, Any] | None) -> None:
    tables = tiny_tables(privacy={"mode": "proven", "epsilon": 1.0, "delta": 1e-5}, run={"seed": 1, "engine": "numpy"})
    tables["data"] |= {"row_bound": 2.0, "shorten": True}
    tables.pop("algorithm")
    (folder / "tiny.toml").write_text(to_toml(tables | ({} if algorithm is None else {"algorithm": algorithm})))
    todo = load(folder / "tiny.toml")
    result = todo.train()
    asked = "auto" if algorithm is None else algorithm["name"]
    assert result.config["choice"]["rule"] == asked
    assert result.config["algorithm"]["name"] == ("noisy-gd" if asked == "auto" else asked)
    assert (result.config["privacy"]["clip"], result.config["objective"]["scale"]) == (1.0, "records")
    assert "step" in result.config["choice"]["why"]
    (folder / "again.toml").write_text(to_toml(result.config))
    again = load(folder / "again.toml")
    assert again.task.rule is None
    assert again.described() == result.config
    np.testing.assert_array_equal(again.train().model, result.model)


def test_a_run_on_arrays_is_described_without_its_rows(folder: Path) -> None:
    federation = load(write_toml(folder)).data().federation
    result = sv.train(
        sv.DPADMM(), federation, sv.Objective(sv.Logistic()), rounds=1, privacy=sv.NoPrivacy(), seed=5, engine="numpy"
    )
    tables = tomllib.loads(to_toml(result.config))
    assert tables == result.config
    assert tables["data"] == {
        "source": "arrays",
        "clients": 3,
        "rows": 45,
        "columns": 2,
        "smallest_client": int(federation.sizes.min()),
        "largest_client": int(federation.sizes.max()),
        "row_bound": 1.0,
    }
    assert tables["run"] == {"engine": "numpy", "rounds": 1, "seed": 5, "runs": 0, "record_every": 1}
    with pytest.raises(InvalidInput, match="arrays given in Python"):
        run_file.build(tables, "config.toml")


def test_another_algorithm_on_the_same_rows(folder: Path) -> None:
    first = load(write_toml(folder))
    rows = first.data()
    second = first.with_task(replace(first.task, algorithm=ALGORITHMS["dp-sgd"]()))
    assert second.data() is rows
    assert second.described()["algorithm"]["name"] == "dp-sgd"


def test_settings_have_one_text() -> None:
    """What noise is bound to: equal for equal settings, different for any other, and never a memory address."""
    from sottovoce.algorithms import FedPLT
    from sottovoce.privacy.noise_key import stable_text
    from sottovoce.solvers import Gradient

    step = np.linspace(0.1, 0.2, 2000)[:, None]
    moved = step.copy()
    moved[1000] += 1e-10
    texts = [stable_text(FedPLT(solver=Gradient(5, s))) for s in (step, step.copy(), moved)]
    assert texts[0] == texts[1] != texts[2]
    assert stable_text(FedPLT(rho=0.1)) != stable_text(FedPLT(rho=0.1 + 1e-17 * 2**4))
    with pytest.raises(InvalidInput, match="Make it a frozen dataclass"):
        stable_text(object())


def test_rows_prepared_otherwise_get_other_noise(folder: Path) -> None:
    """Else two runs of one seed would show what the change does to the exact answers."""
    plain = {"csv": "rows.csv", "label": "outcome", "owner": "owner"}
    wide, wider = ({"age": [-1, 1], "income": [-1, high]} for high in (1, 1.0001))
    told = (
        {"ranges": wide, "labels": ["no", "yes"]},
        {"ranges": wider, "labels": ["no", "yes"]},
        {"ranges": wide, "labels": ["yes", "no"]},
        {"ranges": wide, "labels": ["no", "yes"], "row_bound": 1.4, "shorten": True},
        {"ranges": wide, "labels": ["no", "yes"], "row_bound": 1.5},
        {"ranges": wide, "labels": ["no", "yes"], "row_bound": 1.5000001},
        {"ranges": wide, "labels": ["no", "yes"], "clients": 3, "partition": "iid"},
        {"ranges": wide, "labels": ["no", "yes"], "clients": 3, "partition": "iid", "seed": 1},
        {"ranges": wide, "labels": ["no", "yes"], "test": 0.1},
    )
    runs = [load(write_toml(folder, data={**plain, **each}), rounds=1).train().model for each in told]
    again = load(write_toml(folder, data={**plain, **told[0]}), rounds=1).train().model
    np.testing.assert_array_equal(again, runs[0])
    for one, other in itertools.combinations(runs, 2):
        for sign in (1.0, -1.0):
            assert np.abs(other - sign * one).min() > 1e-6
