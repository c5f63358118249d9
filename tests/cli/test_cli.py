"""The command line: what is printed where, exit codes, and that nothing is left behind when it goes wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import sottovoce
from sottovoce.algorithms import ALGORITHMS
from sottovoce.cli import demo, terminal
from sottovoce.core.participation import PARTICIPATION
from sottovoce.experiment import run_file, saved, store
from sottovoce.experiment.optimum import optimum
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.partition import PARTITIONS
from sottovoce.problems.penalties import PENALTIES
from sottovoce.report import figures
from tests.command_line import invoke
from tests.experiment.test_experiment import tiny_tables, write_csv, write_toml

HEAVY = {"scipy", "numba", "sklearn", "pyarrow", "matplotlib", "dp_accounting", "opendp", "pandas", "numpy"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place to stand in, with the input next door. Nothing is drawn: `test_docs_commands.py` has pictures."""
    (tmp_path / "input").mkdir()
    write_csv(tmp_path / "input")
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("SOTTOVOCE_DEBUG", raising=False)
    monkeypatch.delenv("SOTTOVOCE_DATA", raising=False)
    monkeypatch.setattr(figures.style, "image", lambda _: b"a picture")
    return place


def call(*words: object) -> Any:
    return invoke([str(word) for word in words])


def tiny(here: Path, **changes: Any) -> Path:
    return write_toml(here.parent / "input", **changes)


def started(*words: object, cwd: Path, code: str = "from sottovoce.cli.main import main; main()", **env: str) -> Any:
    """The same in a process of its own, without a log, whose lines depend on how long things take."""
    no_log = "from sottovoce.cli import terminal\nterminal.LOG_LOOKS = 1e6\n"
    command = [sys.executable, "-c", no_log + code, *map(str, words)]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | env
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


def assert_refused(outcome: Any, code: int, *words: str) -> None:
    """One sentence on stderr that says it all, nothing on stdout, no traceback."""
    status = outcome.exit_code if hasattr(outcome, "exit_code") else outcome.returncode
    assert status == code, outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("\n") == 1
    for word in words:
        assert word in outcome.stderr


# ----------------------------------------------------------------------------------------------------------------- help


def test_help_answers_at_once_and_names_the_exit_codes(tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'sottovoce'\nfrom sottovoce.cli.main import main\n"
    code += "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    outcome = started("--help", cwd=tmp_path, code=code)
    assert outcome.returncode == 0
    assert not HEAVY & {name.split(".")[0] for name in outcome.stderr.split()}
    # so the time for which threads of NumPy wait busily can still be set
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"]
    for word in ("demo", "run", "list", "data", "130", "--version"):
        assert word in outcome.stdout


@pytest.mark.parametrize("command", ["demo", "run", "list", "data"])
def test_every_command_has_an_example_and_the_same_two_options(command: str) -> None:
    said = call(command, "--help").stdout
    assert "Example" in said
    assert f"sottovoce {command}" in said
    assert "--json" in said
    assert "--quiet" in said


def test_python_m_runs_the_same_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sottovoce", "--version"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert outcome.stdout == f"sottovoce {sottovoce.__version__}\n"


def test_version() -> None:
    assert call("--version").stdout == f"sottovoce {sottovoce.__version__}\n"


def test_usage_errors_are_bad_input(here: Path) -> None:
    for words in (["runn"], ["run", "--round", "3"], ["run", "--rounds", "many"], ["list", "everything"]):
        outcome = call(*words)
        assert outcome.exit_code == terminal.BAD_INPUT
        assert outcome.stdout == ""
        assert "Traceback" not in outcome.stderr
    assert "run" in call("runn").stderr


# ----------------------------------------------------------------------------------------------------------- list, data


def test_list_names_every_entry_of_every_registry() -> None:
    listed = json.loads(call("list", "--json").stdout)
    found = {kind: {entry["name"] for entry in entries} for kind, entries in listed.items()}
    assert found["algorithms"] == set(ALGORITHMS)
    assert found["losses"] == set(LOSSES)
    assert found["penalties"] == set(PENALTIES)
    assert found["participation"] == set(PARTICIPATION)
    assert found["partitions"] == {*PARTITIONS, "owner"}
    assert "adult" in found["data"]
    assert all(entry["summary"] for entries in listed.values() for entry in entries)
    (dirichlet,) = [entry for entry in listed["partitions"] if entry["name"] == "dirichlet"]
    assert dirichlet["options"] == {"alpha": "needed", "at_least": 1}
    shown, lines = call("list").stdout, call("list", "--quiet").stdout.splitlines()
    for kind, names in found.items():
        for name in names:
            assert name in shown
            assert f"{kind} {name}" in lines


def test_data_says_what_is_here_and_how_to_get_the_rest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {info["name"]: info for info in json.loads(call("data", "--json").stdout)["data"]}
    assert known["adult"]["status"] == "bundled"
    assert known["a9a"]["status"] == "missing"
    shown = call("data").stdout
    assert "adult" in shown
    assert "SOTTOVOCE_DATA" in shown
    assert "a9a missing" in call("data", "--quiet").stdout.splitlines()
    for file in ("a9a", "a9a.t"):
        (here / file).write_text("")
    monkeypatch.setenv("SOTTOVOCE_DATA", str(here))
    assert "a9a found" in call("data", "--quiet").stdout.splitlines()


# ------------------------------------------------------------------------------------------------------------------ run


def test_run_trains_saves_and_says_so(here: Path) -> None:
    outcome = call("run", tiny(here))
    assert outcome.exit_code == 0
    (path,) = (here / "runs").iterdir()
    assert path.name.startswith("tiny-")
    assert (path / store.FIGURE).exists()
    assert saved.load_result(path).rounds == 6
    flat = " ".join(outcome.stdout.split())
    for word in ("dp-admm", "accuracy", "1 per record", "(1, 1e-05)-differential privacy", "Not covered", path.name):
        assert word in flat
    assert f"{saved.load_result(path).history['test_accuracy'][-1]:.2%}" in flat


def test_json_goes_to_stdout_alone(here: Path) -> None:
    outcome = call("run", tiny(here), "--json", "--out", "there", "--rounds", "3", "--seed", "8")
    said = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    assert (said["folder"], said["method"], said["rounds"]) == ("there", "dp-admm", 3)
    assert said["guarantee"]["epsilon"] == pytest.approx(1.0)
    result = saved.load_result(here / "there")
    assert result.config["run"]["seed"] == 8
    assert result.history["test_loss"][-1] == said["test_loss"]


def test_quiet_prints_the_folder_alone(here: Path) -> None:
    outcome = call("run", tiny(here), "--quiet")
    (path,) = (here / "runs").iterdir()
    assert outcome.stdout == f"runs/{path.name}\n"
    assert outcome.stderr == ""


def test_a_saved_config_is_the_same_run_again(here: Path) -> None:
    call("run", tiny(here), "--out", "one")
    assert call("run", "one/config.toml", "--out", "two").exit_code == 0
    one, two = saved.load_result(here / "one"), saved.load_result(here / "two")
    np.testing.assert_array_equal(one.model, two.model)
    assert one.config == two.config


def test_several_runs_and_no_test_rows(here: Path) -> None:
    table = {name: value for name, value in tiny_tables()["data"].items() if name != "test"}
    run = {"rounds": 2, "seed": 1, "engine": "numpy", "runs": 3}
    outcome = call("run", tiny(here, data=table, run=run, privacy={"mode": "none"}))
    assert outcome.exit_code == 0
    assert "No privacy" in outcome.stdout
    outcome = call("run", tiny(here, data=table, run=run), "--json")
    assert json.loads(outcome.stdout)["objective_std"] > 0


CSV = tiny_tables()["data"]
BAD = {
    "unknown algorithm": ({"algorithm": {"name": "dp-adm"}}, terminal.BAD_INPUT, "Did you mean 'dp-admm'?"),
    "unknown key": ({"algorithm": {"name": "dp-admm", "roh": 1.0}}, terminal.BAD_INPUT, "Did you mean 'rho'?"),
    "rho": ({"algorithm": {"name": "dp-admm", "rho": 0.0}}, terminal.BAD_INPUT, "rho must be > 0, got 0.0"),
    "epsilon": (
        {"privacy": {"mode": "proven", "epsilon": -1.0, "delta": 1e-5, "clip": 1.0}},
        terminal.BAD_INPUT,
        "epsilon must be > 0, got -1.0",
    ),
    "delta": (
        {"privacy": {"mode": "proven", "epsilon": 1.0, "delta": 2.0, "clip": 1.0}},
        terminal.BAD_INPUT,
        "delta must lie in (0, 1), got 2.0",
    ),
    "more clients than rows": (
        {"data": {**CSV, "partition": "iid", "clients": 100}},
        terminal.BAD_INPUT,
        "clients must be <= rows = 45",
    ),
    "more asked than there are": (
        {"participation": {"name": "k-of-n", "k": 9}},
        terminal.BAD_INPUT,
        "k must be at most the number of clients (3)",
    ),
    "csv not there": ({"data": {**CSV, "csv": "none.csv"}}, terminal.MISSING, "none.csv: there is no such file"),
    "data set not there": ({"data": {"name": "a9a", "download": False}}, terminal.MISSING, "a9a: not found"),
    "no proof": ({"algorithm": {"name": "dvp"}}, terminal.NO_PRIVACY, "has no 'proven' variant"),
    "no bounded sensitivity": (
        {
            "algorithm": {"name": "pvp"},
            "objective": {"loss": "squared"},
            "data": {"csv": "numbers.csv", "label": "income", "clients": 2, "row_bound": 9.0},
        },
        terminal.NO_PRIVACY,
        "no bounded sensitivity",
    ),
}


@pytest.mark.parametrize(("changes", "code", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    here: Path, changes: dict[str, Any], code: int, words: str
) -> None:
    (here.parent / "input" / "numbers.csv").write_text("age,income\n0.1,0.2\n0.3,0.4\n0.5,0.1\n0.2,0.9\n")
    assert_refused(call("run", tiny(here, **changes)), code, words)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nan,a,no,1", "must be a finite number (1 such entries)"),
        ("1,a,no", "must have 4 fields"),
        ("1,a,maybe,1", "two classes"),
    ],
)
def test_bad_rows(here: Path, line: str, words: str) -> None:
    write_csv(here.parent / "input", bad={9: line})
    assert_refused(call("run", tiny(here)), terminal.BAD_INPUT, words, "rows.csv")
    assert list(here.iterdir()) == []


def test_files_and_folders_that_do_not_fit(here: Path) -> None:
    assert_refused(call("run", "none.toml"), terminal.MISSING, "none.toml: there is no such file")
    assert_refused(call("run"), terminal.BAD_INPUT, "needs FILE.toml, or --resume DIR")
    assert_refused(call("run", here.parent / "input"), terminal.BAD_INPUT, "is a folder")
    (here / "file").write_text("x")
    assert_refused(call("run", tiny(here), "--out", "file/there"), terminal.NOT_WRITTEN, "cannot be written")
    assert_refused(call("run", tiny(here), "--out", "file"), terminal.BAD_INPUT, "not an empty folder")
    (here / "full").mkdir()
    (here / "full" / "x").write_text("x")
    assert_refused(call("run", tiny(here), "--out", "full"), terminal.BAD_INPUT, "not an empty folder")
    assert_refused(call("demo", "--out", "full"), terminal.BAD_INPUT, "not an empty folder")
    assert_refused(call("run", tiny(here), "--checkpoint-every", "0"), terminal.BAD_INPUT, "every must be > 0")
    assert_refused(call("run", tiny(here), "--rounds", "0"), terminal.BAD_INPUT, "rounds must be a whole number >= 1")
    assert {path.name for path in here.iterdir()} == {"file", "full"}


def test_a_disk_that_takes_no_more(here: Path) -> None:
    """For real: the operating system refuses to let any file grow beyond a few bytes."""
    code = "import resource, sys\nfrom sottovoce.cli.main import main\n"
    code += "import sottovoce.experiment.store, scipy.special, matplotlib.figure\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\nmain()"
    outcome = started("run", tiny(here), cwd=here, code=code, PYTHONDONTWRITEBYTECODE="1")
    assert_refused(outcome, terminal.NOT_WRITTEN, "cannot be written (file too large)")
    assert list(here.iterdir()) == []


def test_an_error_of_our_own_asks_to_be_reported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("two plus two is five")

    monkeypatch.setattr(run_file, "run_task", broken)
    outcome = call("run", tiny(here))
    assert_refused(outcome, terminal.INTERNAL, "RuntimeError", "please report it", "SOTTOVOCE_DEBUG")
    assert "two plus two" not in outcome.output  # such an error may quote rows
    assert list(here.iterdir()) == []
    monkeypatch.setenv("SOTTOVOCE_DEBUG", "1")
    outcome = call("run", tiny(here))
    assert isinstance(outcome.exception, RuntimeError)
    assert_refused(call("run", "none.toml"), terminal.MISSING)  # a refusal stays one sentence


# -------------------------------------------------------------------------------------------------- Ctrl-C and --resume

PRESS_AT_ROUND = """
import os, signal, sys
from sottovoce.cli import main as cli
from sottovoce.experiment import store

*arguments, at = sys.argv[1:]
keep = store.Checkpoints.__call__

def keep_and_press(self, checkpoint):
    keep(self, checkpoint)
    if checkpoint.k == int(at):
        os.kill(os.getpid(), signal.SIGINT)

store.Checkpoints.__call__ = keep_and_press
cli.app(arguments)
"""


def test_ctrl_c_leaves_a_run_that_can_be_resumed(here: Path) -> None:
    todo = tiny(here, participation={"name": "k-of-n", "k": 2}, run={"rounds": 9, "seed": 1, "engine": "numpy"})
    call("run", todo, "--out", "whole")
    outcome = started("run", todo, "--out", "part", "4", cwd=here, code=PRESS_AT_ROUND, FORCE_COLOR="1")
    assert outcome.returncode == 128 + signal.SIGINT
    assert outcome.stdout == ""
    assert "Interrupted after round 4 of 9. Go on with: sottovoce run --resume part" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert "dp-admm" in outcome.stderr  # FORCE_COLOR: someone is looking, so there is a bar
    assert "left:" in outcome.stderr
    assert {path.name for path in (here / "part").iterdir()} == {store.CONFIG, store.CHECKPOINT}
    outcome = call("run", "--resume", "part", "--json")
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout)["rounds"] == 9
    whole, part = saved.load_result(here / "whole"), saved.load_result(here / "part")
    np.testing.assert_array_equal(part.model, whole.model)
    for name in whole.history.columns:
        if name != "seconds":
            assert part.history.columns[name] == whole.history.columns[name]
    assert part.guarantee == whole.guarantee
    assert_refused(call("run", "--resume", "part"), terminal.BAD_INPUT, "finished, there is nothing to resume")


def test_ctrl_c_before_the_first_round_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_file, "run_task", pressed)
    outcome = call("run", tiny(here))
    assert outcome.exit_code == terminal.INTERRUPTED
    assert outcome.stderr == "Interrupted. Nothing was saved.\n"
    assert list(here.iterdir()) == []


def test_ctrl_c_while_a_resumed_run_starts_says_how_to_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = tiny(here)
    started("run", todo, "--out", "a part", "2", cwd=here, code=PRESS_AT_ROUND)
    before = (here / "a part" / store.CHECKPOINT).read_bytes()

    def pressed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(saved, "load_checkpoint", pressed)
        outcome = call("run", "--resume", "a part")
    assert outcome.exit_code == terminal.INTERRUPTED
    assert outcome.stderr == "Interrupted. Go on with: sottovoce run --resume 'a part'\n"
    assert (here / "a part" / store.CHECKPOINT).read_bytes() == before


def test_what_cannot_be_resumed(here: Path) -> None:
    (here / "empty").mkdir()
    assert_refused(call("run", "--resume", "none"), terminal.MISSING, "none: there is no such run folder")
    assert_refused(call("run", "--resume", "empty"), terminal.MISSING, "nothing to resume")
    for more in (["--rounds", "3"], ["--seed", "1"], ["--out", "x"], [str(tiny(here))]):
        assert_refused(call("run", "--resume", "empty", *more), terminal.BAD_INPUT, "give it alone")
    assert list((here / "empty").iterdir()) == []


# ----------------------------------------------------------------------------------------------------------------- demo


def small_demo(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tiny_tables()
    data = {**tables["data"], "csv": str(here.parent / "input" / "rows.csv")}
    run = {"seed": 0, "engine": "numpy"}
    monkeypatch.setattr(demo, "TABLES", {**demo.TABLES, "data": data, "run": run})


def test_demo_compares_saves_and_says_where(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_demo(here, monkeypatch)
    outcome = call("demo", "--json", "--out", "shown")
    said = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    summed = "noisy-gd, sums"
    assert [method["method"] for method in said["methods"]] == ["optimum", "noisy-gd", "dp-admm", "dp-sgd", summed]
    for method in said["methods"][1:]:
        assert method["epsilon"] == pytest.approx(1.0, abs=1e-6)
        assert method["objective"] > said["methods"][0]["objective"]
        folder = method["method"].replace(", ", "-")
        assert saved.load_result(here / "shown" / folder).remarks == method["why"]
    assert {path.name for path in (here / "shown").iterdir()} == {
        *(
            "noisy-gd",
            "dp-admm",
            "dp-sgd",
            "noisy-gd-sums",
            "optimum.npz",
            "comparison.json",
            "comparison.png",
        ),
    }
    outcome = call("demo")
    assert outcome.exit_code == 0
    for word in (
        "optimum",
        "noisy-gd",
        "dp-admm",
        "dp-sgd",
        "one record of one client",
        "Constants by rule",
        "Saved in runs/demo-",
        "every opened sum",
    ):
        assert word in " ".join(outcome.stdout.split())


def test_a_demo_that_is_interrupted_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_demo(here, monkeypatch)

    def pressed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "convergence", pressed)
    assert call("demo").exit_code == terminal.INTERRUPTED
    assert list(here.iterdir()) == []


def test_the_optimum_of_the_demo_is_scikit_learns(here: Path) -> None:
    table = {"csv": "rows.csv", "label": "outcome", "clients": 3, "test": 15, "row_bound": 9.0}
    (here.parent / "input" / "rows.csv").write_text(
        (here.parent / "input" / "rows.csv")
        .read_text()
        .replace(",a,", ",1,")
        .replace(",b,", ",2,")
        .replace(",c,", ",3,")
    )
    todo = run_file.load(tiny(here, data=table))
    federation, test = todo.data().federation.as_rows("test", "is for rows"), todo.data().test
    assert test is not None
    model, said = optimum(federation, todo.task.objective, test)
    assert set(federation.sizes) == {15}  # so that the mean over clients is the mean over rows
    theirs = LogisticRegression(C=1 / (0.01 * 45), fit_intercept=False, tol=1e-10).fit(federation.X, federation.y)
    np.testing.assert_allclose(model, theirs.coef_[0], atol=1e-4)
    assert said["test_accuracy"] == pytest.approx(theirs.score(*test))


@pytest.mark.parametrize("tested", [False, True])
def test_run_says_what_is_not_for_release(tested: bool, here: Path) -> None:
    table = {name: value for name, value in tiny_tables()["data"].items() if tested or name != "test"}
    file = tiny(here, data=table)
    said = " ".join(call("run", file, "--out", "shown").stdout.split())
    assert ("set aside from the owners' own" in said) == tested
    told = json.loads(call("run", file, "--json", "--out", "told").stdout)
    assert told["not_released"] == (["objective", "test_accuracy", "test_loss"] if tested else ["objective"])


def test_the_demo_is_the_one_that_was_promised() -> None:
    assert demo.TABLES["data"] | {"clients": 100, "test": 5222, "name": "adult"} == demo.TABLES["data"]
    assert demo.TABLES["privacy"] == {"mode": "proven", "epsilon": 1.0, "delta": 1e-5}
    assert "rounds" not in demo.TABLES["run"]
    assert list(demo.METHODS) == ["auto", "dp-admm", "dp-sgd"]


def test_account_answers_three_questions() -> None:
    planned = json.loads(call("account", "--epsilon", "1", "--rounds", "100", "--json").stdout)
    assert planned["event"]["noise_multiplier"] == pytest.approx(37.3063, rel=1e-5)
    assert planned["affordable_rounds"] == 100
    assert [rounds for rounds, _ in planned["table"]] == [1, 2, 5, 10, 20, 50, 100]
    spoken = call("account", "--noise", "37.3064", "--rounds", "100")
    assert "exact Gaussian trade-off" in spoken.stdout.replace("\n", " ")
    assert call("account", "--noise", "37.3064", "--rounds", "100", "--quiet").stdout.strip() == "0.999998"
    wrong = call("account", "--noise", "1", "--relation", "replace")
    assert wrong.exit_code == 2
    assert "Did you mean 'replace-one'?" in wrong.stderr
    assert call("account", "--rounds", "3").exit_code == 2


def test_ledgers_from_a_config_outlive_the_run(here: Path) -> None:
    file = tiny(here, run={"rounds": 2, "seed": 0, "ledgers": str(here / "ledgers")})
    first = call("run", file, "--out", here / "a", "--json")
    assert first.exit_code == 0, first.stderr
    second = call("run", file, "--out", here / "b", "--seed", 1)
    assert_refused(second, 4, "no round could be done", "every client's budget is spent")
    assert not (here / "b").exists()


def test_tables_fit_eighty_columns(here: Path) -> None:
    for changes in ({"run": {"rounds": 3, "seed": 0, "runs": 3}}, {"run": {"rounds": 3, "seed": 0}}):
        outcome = call("run", tiny(here, **changes), "--out", here / str(len(changes["run"])))
        assert outcome.exit_code == 0, outcome.stderr
        table = outcome.stdout.split("Privacy:")[0]
        assert "…" not in table
        assert "dp-admm" in table


def test_warnings_are_one_sentence_and_a_terminal_may_lack_greek_letters(here: Path) -> None:
    loose = {"mode": "proven", "epsilon": 1.0, "delta": 0.4, "clip": 1.0}
    outcome = started("run", tiny(here, privacy=loose), cwd=here, PYTHONIOENCODING="ascii")
    assert outcome.returncode == 0
    assert "warning: Proven: delta = 0.4 is not below 1/size" in outcome.stderr
    assert ".py" not in outcome.stderr
    assert "?, per what" in outcome.stdout


def test_published_gaussian_noise_needs_a_delta(here: Path) -> None:
    file = tiny(here, privacy={"mode": "published", "epsilon": 0.1})
    assert_refused(call("run", file), 2, "Gaussian noise needs a delta in (0, 1), got 0.0")


# --------------------------------------------------------------------------------------------------------------- verify


def test_verify_says_what_holds_and_what_does_not(here: Path) -> None:
    """0: it holds; 9: it does not; 2: it cannot be verified at all."""
    outcome = call("run", tiny(here), "--out", "run")
    assert outcome.exit_code == 0, outcome.stderr
    outcome = call("verify", "run")
    assert outcome.exit_code == terminal.DONE
    for words in (
        "Verified:",
        "a second accountant finds epsilon",
        "Rests on somebody's word:",
        "Digest of the folder",
    ):
        assert words in " ".join(outcome.stdout.split())
    assert call("verify", "run", "--quiet").stdout == "holds\n"
    told = json.loads(call("verify", "run", "--json").stdout)
    assert told["holds"] is True
    assert {one["status"] for one in told["checks"]} == {"verified", "rests on somebody's word"}
    (here / "run" / "guarantee.txt").write_text("Nobody learns anything.\n")
    outcome = call("verify", "run")
    assert outcome.exit_code == terminal.DOES_NOT_HOLD
    assert "Do not rely on its guarantee" in " ".join(outcome.stdout.split())
    assert call("verify", "run", "--quiet").stdout == "does not hold\n"
    assert json.loads(call("verify", "run", "--json").stdout)["holds"] is False
    assert_refused(call("verify", "nowhere"), terminal.MISSING, "no such run folder")
    (here / "run" / "manifest.json").unlink()
    assert_refused(call("verify", "run"), terminal.BAD_INPUT, "must be a run folder of format 2")
    assert "9: something does not" in " ".join(call("verify", "--help").stdout.replace("│", " ").split())
