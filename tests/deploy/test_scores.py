"""Scores of new samples between machines: the model's own numbers, and what a server cannot make of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import MaskedMoments
from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.deploy import multiplied_remote, node_check, scoring, setup_server, training, wire
from sottovoce.deploy.aggregation import store
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.flower import app_folder
from sottovoce.deploy.keys import make_signing_key
from sottovoce.deploy.limits import Limits
from sottovoce.deploy.multiplied_remote import predicted_scores
from sottovoce.deploy.node import Node
from sottovoce.deploy.own_data import Own
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment import store as store_of_runs
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from tests import multiplied
from tests.cases import goal
from tests.deployments import LIMITS, NAME, LocalPost, charged
from tests.multiplied import SAMPLES, SEEDED, columns, deployment_of, new_samples, write_owners

IDS = [str(SAMPLES + each) for each in (5, 0, 11)]
ROWS = [5, 0, 11]


class Trained:
    """Owners who have trained, and who allow scores."""

    def __init__(self, folder: Path, n: int, **limits: Any) -> None:
        self.files = write_owners(folder, n, **{"scores_per_day": 1000} | limits)
        self.made, self.n = deployment_of(n), n
        self.result: Any = serve(self.made, NAME, LocalPost(self.files), folder / "run")

    def scores(self, ids: list[str], post: LocalPost | None = None, name: str = NAME) -> np.ndarray:
        return predicted_scores(self.made, name, post or LocalPost(self.files), self.result, ids)

    def asked(self, ids: list[str], meddle: Any = None) -> LocalPost:
        post = LocalPost(self.files, meddle)
        self.scores(ids, post)
        return post


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"), request.param)


def replies(post: LocalPost, what: str) -> list[tuple[int, Ask, Reply]]:
    return [each for each in post.asked if each[1].what == what]


def test_the_scores_are_the_models_up_to_the_fixed_point(trained: Trained) -> None:
    """Each owner rounds its part to 2^-32."""
    direct = trained.result.scores([part[ROWS] for part in new_samples(trained.n)])
    assert np.abs(trained.scores(IDS) - direct).max() <= trained.n * 2.0**-33
    assert [charged(file) for file in trained.files] == [1] * trained.n, "a score is no answer about training samples"


def test_long_lists_are_asked_in_parts(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MOST_IDS", 2)
    post = LocalPost(trained.files)
    direct = trained.result.scores([part[ROWS] for part in new_samples(trained.n)])
    assert np.abs(trained.scores(IDS, post) - direct).max() <= trained.n * 2.0**-33
    assert len(replies(post, wire.SCORES)) == 2 * trained.n


def test_the_server_sees_sums_alone_and_masks_are_fresh(trained: Trained) -> None:
    """What an owner sends twice for the same samples has nothing in common but what all send together."""
    sent = []
    for _ in range(2):
        post = trained.asked(IDS)
        sent.append([wire.bytes_of(reply.up) for _, _, reply in replies(post, wire.SCORES)])
    words = np.array([[np.frombuffer(each, dtype="<u8") for each in one] for one in sent])
    assert np.array_equal(words[0].sum(axis=0, dtype=np.uint64), words[1].sum(axis=0, dtype=np.uint64))
    exact = [trained.result.partial_scores(m, part[ROWS]) for m, part in enumerate(new_samples(trained.n))]
    for m in range(trained.n):
        assert not (words[0, m] == words[1, m]).any()
        assert (np.abs(words[:, m].view(np.int64) / 2.0**32 - exact[m]) > 1.0).any()


def test_a_reply_is_given_once(trained: Trained) -> None:
    """Under the same masks a second one, to other ids, would show the difference of two scores."""
    post = trained.asked(IDS)
    m, ask, _ = replies(post, wire.SCORES)[0]
    assert Node(trained.files[m]).answer(ask).code == wire.SET_UP
    begin = replies(post, wire.SCORE_BEGIN)[0][1]
    Node(trained.files[m]).answer(begin)
    again = Node(trained.files[m]).answer(ask)
    assert (again.code, "something else" in again.why) == (wire.SET_UP, True), "an older announcement is void"


def test_a_lost_reply_is_asked_for_under_other_masks(trained: Trained) -> None:
    lost = []

    class Lossy(LocalPost):
        def ask(self, asks: Any, deadline: float) -> Any:
            got = super().ask(asks, deadline)
            if not lost and any(ask.what == wire.SCORES for ask in asks.values()):
                lost.append(1)
                return super().ask(asks, deadline)  # the first replies are lost, and it asks again
            return got

    post = Lossy(trained.files)
    direct = trained.result.scores([part[ROWS] for part in new_samples(trained.n)])
    assert np.abs(trained.scores(IDS, post) - direct).max() <= trained.n * 2.0**-33
    assert len(replies(post, wire.SCORE_BEGIN)) == 2 * trained.n


def test_a_machine_that_starts_again_has_forgotten_its_masks(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    post = LocalPost(trained.files, lambda m, ask, reply: None if ask.what == wire.SCORES else reply)
    with pytest.raises(TooFewAnswers):
        trained.scores(IDS, post)
    begin = replies(post, wire.SCORE_BEGIN)[0][1]
    assert not Node(trained.files[0]).answer(begin).code
    monkeypatch.setattr(store, "start_of_machine", lambda: "another")
    ask = replies(post, wire.SCORES)[0][1]
    refused = Node(trained.files[0]).answer(ask)
    assert (refused.code, "announced nothing" in refused.why) == (wire.SET_UP, True)


# ----------------------------------------------------------------------------------------- samples that were trained on


def refusal(trained: Trained, ids: list[str]) -> tuple[str, list[tuple[str, str, int]]]:
    post = LocalPost(trained.files)
    with pytest.raises(TooFewAnswers) as error:
        trained.scores(ids, post)
    said = [(reply.code, reply.why, len(reply.up)) for _, _, reply in replies(post, wire.SCORES)]
    return str(error.value), said


def test_a_sample_that_was_trained_on_is_refused_as_an_unknown_one_is(trained: Trained) -> None:
    """Else the refusal would tell who was trained on. It is in the table of new samples all the same."""
    one, unknown = refusal(trained, [*IDS, "1"]), refusal(trained, [*IDS, "nobody"])
    assert one == unknown
    assert one[1][0][:2] == (wire.BAD_ASK, scoring.UNKNOWN)
    assert refusal(trained, ["0", "1"]) == refusal(trained, ["nobody", "nobody else"]) == one


def test_it_is_not_among_the_samples_that_are_looked_up(trained: Trained) -> None:
    """So no step of the look-up, and no time that it takes, depends on it."""
    for file in trained.files:
        assert set(Node(file).new_rows) == {str(SAMPLES + each) for each in range(12)}


def test_a_node_remembers_whom_it_trained_on(tmp_path: Path) -> None:
    """Its owner puts other rows into the file while it runs: those that it read are what the model was trained on."""
    trained = Trained(tmp_path, 2)
    nodes = [Node(file) for file in trained.files]
    for node in nodes:
        node.status()
        rows = node.path.parent / "rows.npz"
        arrays = dict(np.load(rows))
        np.savez(rows, **arrays | {"who": arrays["who"] + 1000})
        assert set(node.new_rows) == {str(SAMPLES + each) for each in range(12)}
        node.close()


def test_spellings_of_a_number_are_one_id(tmp_path: Path) -> None:
    """An id that is written in another way in the table of new samples was trained on all the same."""
    new, limits = scoring.NewSamples(csv="new.csv", id="who"), Limits(1.0, 1e-6, (), ())
    (tmp_path / "own.csv").write_text("who,x\n1,2\n2,3\n3,4\n")
    own = Own(csv="own.csv", id="who", salt="pepper").rows(tmp_path, "bank", limits)
    (tmp_path / "new.csv").write_text("who,x\n1.0,2\n 02,3\n7,4\n")
    assert set(scoring.read_new(new, own, tmp_path, None, limits)) == {"7"}
    assert set(scoring.read_new(new, own, tmp_path, None, replace(limits, score_trained=True))) == {"1.0", "02", "7"}
    (tmp_path / "new.csv").write_text("who,x\n7,2\n7,3\n")
    with pytest.raises(MissingData, match="an id must be there once"):
        scoring.read_new(new, own, tmp_path, None, limits)


def test_an_owner_may_allow_them(tmp_path: Path) -> None:
    trained = Trained(tmp_path, 2, score_trained=True)
    parts = [part[:3] for part in columns(2).parts]
    assert np.abs(trained.scores(["0", "1", "2"]) - trained.result.scores(parts)).max() <= 2 * 2.0**-33


# -------------------------------------------------------------------------------------------------- what owners refuse


def test_by_default_no_scores_are_answered(tmp_path: Path) -> None:
    trained = Trained(tmp_path, 2, scores_per_day=0)
    with pytest.raises(TooFewAnswers, match="scores_per_day is 0"):
        trained.scores(IDS)


def test_so_many_in_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(tmp_path, 2, scores_per_day=5)
    trained.scores(IDS)
    with pytest.raises(TooFewAnswers, match="it is asked for 5 scores in any 24 hours"):
        trained.scores(IDS)
    trained.scores(IDS[:2])
    now = scoring.wall()
    monkeypatch.setattr(scoring, "wall", lambda: now + scoring.DAY + 1)
    trained.scores(IDS)
    monkeypatch.setattr(scoring, "wall", lambda: now)
    with pytest.raises(TooFewAnswers, match="5 scores in any 24 hours"):
        trained.scores(IDS)  # those that are stamped later are new
    monkeypatch.setattr(scoring, "wall", lambda: now + 3 * scoring.DAY)
    for _ in range(5):
        refusal(trained, ["nobody"])
    with pytest.raises(TooFewAnswers, match="5 scores in any 24 hours"):
        trained.scores(IDS[:1])  # who guesses ids is asked to come back, too
    log = (trained.files[0].parent / "node" / "node.log").read_text()
    assert log.count("scores of 3 new samples") == 2
    assert IDS[0] not in [word for line in log.splitlines() for word in line.split()], "ids are not in the log"


def test_another_model_is_refused(trained: Trained) -> None:
    """Unit vectors, one after the other, would read an owner's rows."""
    trained.scores(IDS)
    unit = np.zeros_like(trained.result.model)
    unit[0] = 1.0
    other = replace(trained.result, model=unit)
    with pytest.raises(TooFewAnswers, match="another model of this experiment was used before"):
        predicted_scores(trained.made, NAME, LocalPost(trained.files), other, IDS)


def test_what_one_model_of_a_servers_own_making_shows(tmp_path: Path) -> None:
    """Why docs tell owners to reckon with it: columns of few values, all of one owner's, stand in one number."""
    trained = Trained(tmp_path, 2)
    categories = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    np.savez(trained.files[0].parent / "new.npz", X=categories.astype(float), who=SAMPLES + np.arange(4))
    made_up = np.zeros_like(trained.result.model)
    made_up[:2] = 2, 1  # those of the first owner; zeros for the second
    trained.result = replace(trained.result, model=made_up)
    assert trained.scores([str(SAMPLES + each) for each in range(4)]).tolist() == [0, 1, 2, 3]


def test_only_in_an_experiment_that_it_answered_in(trained: Trained) -> None:
    with pytest.raises(TooFewAnswers, match="it took no part in this experiment"):
        trained.scores(IDS, name=NAME[::-1])


def test_owners_are_those_of_the_experiment(tmp_path: Path) -> None:
    """Else a server whose friend an owner also knows would name it in another owner's place, and take the mask off."""
    trained = Trained(tmp_path, 2)
    post = trained.asked(IDS)
    with trained.files[0].open("a") as file:
        file.write(f'friend = "{make_signing_key(tmp_path / "friend.key")}"\n')
    begin = replies(post, wire.SCORE_BEGIN)[0][1]
    other = wire.of_bytes(scoring.pack_names("a name", ["bank", "friend"]))
    refused = Node(trained.files[0]).answer(replace(begin, down=other))
    assert (refused.code, "owners must be those of the experiment" in refused.why) == (wire.BAD_ASK, True)
    assert not Node(trained.files[0]).answer(begin).code


def test_an_owner_alone_answers_no_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody to share a mask with. Its run has no pairs of owners, and is one all the same."""
    monkeypatch.setattr(multiplied, "HOLDER", 0)
    trained = Trained(tmp_path, 1)
    assert (trained.result.stopped, charged(trained.files[0])) == ("", 1)
    with pytest.raises(TooFewAnswers, match="parts of 2 to 31 owners"):
        trained.scores(IDS)


def broken_entry(home: Path) -> None:
    arrays = dict(np.load(home / "new.npz"))
    arrays["X"][4, 1] = np.nan
    np.savez(home / "new.npz", **arrays)


def repeated_id(home: Path) -> None:
    arrays = dict(np.load(home / "new.npz"))
    arrays["who"][1] = arrays["who"][0]
    np.savez(home / "new.npz", **arrays)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "an entry": (broken_entry, "the entry at (4, 1)"),
    "an id": (repeated_id, "an id must be there once"),
    "its key": (lambda home: (home / "products.key").write_text("no key"), "must hold an Ed25519 key"),
    "its record": (lambda home: (home / f"node/records/{NAME}/own.json").write_text("{}"), "is no record"),
}


def test_of_its_own_files_a_server_is_told_nothing(tmp_path: Path) -> None:
    """What is wrong in them, and in which row, is for the owner's log."""
    trained = Trained(tmp_path, 2)
    home = trained.files[0].parent
    for name, (breaks, why) in BROKEN.items():
        kept = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        breaks(home)
        post = LocalPost(trained.files)
        with pytest.raises(TooFewAnswers):
            trained.scores(IDS, post)
        last = [reply for m, _, reply in post.asked if m == 0][-1]
        assert (last.code, last.why) == (wire.FAILED, "it could not answer; its own log says why"), name
        assert why in (home / "node" / "node.log").read_text().splitlines()[-1], name
        looked = {item.name: item for item in node_check.items(trained.files[0], ask_server=False)}["new samples"]
        told = ("bad", why) if name in ("an entry", "an id") else ("good", "12 that it may be asked about")
        assert (looked.state, told[1] in looked.text) == (told[0], True), "its owner sees it before anybody asks"
        for path, content in kept.items():
            path.write_bytes(content)


def slipped(m: int, ask: Ask, reply: Reply) -> Reply:
    """The server announces a key of its own in the second owner's place: it would take the first one's mask off."""
    if ask.what != wire.SCORE_BEGIN or m != 1:
        return reply
    true = wire.bytes_of(reply.up)
    return Reply(up=wire.of_bytes(true[:32] + bytes(range(32)) + true[64:]))


def test_a_server_cannot_announce_in_an_owners_place(trained: Trained) -> None:
    post = LocalPost(trained.files, slipped)
    with pytest.raises(TooFewAnswers, match="signed by the key that is pinned for its owner"):
        trained.scores(IDS, post)


def test_owners_asked_about_other_ids_send_noise(trained: Trained) -> None:
    """A server that asks one owner about another sample gets no difference of scores: masks do not cancel."""
    honest = scoring.pack_question
    asked: list[int] = []

    def other(everyone: bytes, model: np.ndarray, ids: Any) -> bytes:
        asked.append(1)
        return honest(everyone, model, ids if len(asked) % trained.n else [*ids[1:], ids[0]])

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(multiplied_remote.scoring, "pack_question", other)
        assert np.abs(trained.scores(IDS)).min() > 1e3


MALFORMED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda good: b"",
    "no ids": lambda good: good[: good.index(b"[")] + b"[]",
    "no list": lambda good: good[: good.index(b"[")] + b'{"a": 1}',
    "an id twice": lambda good: good[: good.index(b"[")] + b'["61", "61"]',
    "numbers": lambda good: good[: good.index(b"[")] + b"[61]",
    "a long id": lambda good: good[: good.index(b"[")] + b'["' + b"6" * 201 + b'"]',
    "deep": lambda good: good[: good.index(b"[")] + b"[" * 100_000,
    "too short": lambda good: good[:100],
}


@pytest.mark.parametrize("how", MALFORMED)
def test_malformed_questions_are_refused(trained: Trained, how: str) -> None:
    honest = scoring.pack_question

    def packed(*given: Any) -> bytes:
        return MALFORMED[how](honest(b"", np.zeros(0), given[2])) if how == "nothing" else bad(honest(*given), given)

    def bad(good: bytes, given: Any) -> bytes:
        head = len(good) - len(honest(b"", np.zeros(0), given[2]))  # announcements and model, which hold any bytes
        return good[:head] + MALFORMED[how](good[head:]) if how != "too short" else good[:100]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(multiplied_remote.scoring, "pack_question", packed)
        with pytest.raises(TooFewAnswers, match="bad-ask"):
            trained.scores(IDS)


# ------------------------------------------------------------------------------------------------------ as a command


def test_predictions_for_a_file_of_ids(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("\ufeff" + "\n".join(IDS) + "\n\n")
    trained.result.save(tmp_path / "run")
    files = tmp_path / "ids.txt", tmp_path / "predictions.csv"
    post = LocalPost(trained.files)
    assert multiplied_remote.predict_ids(trained.made, NAME, post, tmp_path / "run", *files) == 3
    rows = [line.split(",") for line in files[1].read_text().splitlines()]
    parts = [part[ROWS] for part in new_samples(trained.n)]
    assert rows[0] == ["id", "prediction", "probability of -1", "probability of 1"]
    assert [row[0] for row in rows[1:]] == IDS
    assert [float(row[1]) for row in rows[1:]] == trained.result.predict(parts).tolist()
    chances = [[float(each) for each in row[2:]] for row in rows[1:]]
    np.testing.assert_allclose(chances, trained.result.predict_proba(parts), atol=1e-9)


@pytest.mark.parametrize("text", ["", "61\n61\n", "6" * 201])
def test_ids_are_looked_at_before_anybody_is_asked(tmp_path: Path, text: str) -> None:
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(InvalidInput, match="all different and of at most 200 characters"):
        multiplied_remote.read_ids(tmp_path / "ids.txt")


def test_the_app_of_a_prediction_is_about_a_finished_run(tmp_path: Path) -> None:
    """It has the run's own experiment and settings, and is not taken for one that a stopped run goes on with."""
    made, study = deployment_of(2), tmp_path / "study"
    setup_server.make(study, [], 8700, 8701, 1, "", False)
    run, files = study / "runs" / "one", (tmp_path / "ids.txt", tmp_path / "out.csv")
    name = app_folder.write(study / "apps" / "one", to_toml(made.tables), run)
    files[0].write_text("\n".join(IDS))
    with pytest.raises(InvalidInput, match="holds no finished run"):
        training.prediction(study, run, *files, "predict-1")
    run.mkdir(parents=True)
    (run / store_of_runs.MODEL).write_bytes(b"")
    job = training.prediction(study, run, *files, "predict-1")
    config = app_folder.config_of(job.app)
    assert (config["experiment"], config["ids"], config["folder"]) == (name, str(files[0]), str(run))
    assert training.resumed(study, run).app == study / "apps" / "one"
    files[1].write_text("")
    with pytest.raises(InvalidInput, match="there is such a file already"):
        training.prediction(study, run, *files, "predict-2")


# ----------------------------------------------------------------------------------------------------- with a schema

SCHEMA: Any = {
    "parties": {"bank": ["age", "income"], "shop": ["home"]},
    "drop": ["who"],
    "label": {"column": "buys", "classes": ["no", "yes"]},
    "columns": {
        "age": {"range": [18, 90]},
        "income": {"range": [0, 9000], "knots": 4},
        "home": {"levels": ["own", "rent"]},
    },
}


def test_tables_as_they_are(tmp_path: Path) -> None:
    """Owners encode their own columns of new samples by their part of the schema; the result knows the labels."""
    rng, samples = np.random.default_rng(0), 80
    people: list[Any] = [
        {"who": f"p{i}", "age": 20 + i % 60, "income": int(rng.integers(9000)), "home": ("own", "rent")[i % 2]}
        for i in range(samples + 4)
    ]
    for each in people:
        each["buys"] = "yes" if each["income"] > 4500 else "no"
    keys = {name: make_signing_key(tmp_path / f"{name}.key") for name in SCHEMA["parties"]}
    files = []
    for name, own in SCHEMA["parties"].items():
        home = tmp_path / name
        home.mkdir()
        columns = ["who", *own]
        for file, some in (("own.csv", people[:samples]), ("new.csv", people[samples:])):
            holds = name == "bank" and file == "own.csv"
            named = columns + (["buys"] if holds else [])
            lines = [",".join(str(each[column]) for column in named) for each in some]
            (home / file).write_text("\n".join([",".join(named), *lines]))
        tables: Any = {
            "node": {"name": name},
            "data": {"csv": "own.csv", "id": "who", "salt": "pepper"},
            "predict": {"csv": "new.csv", "id": "who"},
            "limits": LIMITS | {"scores_per_day": 10},
            "products": {"key": f"../{name}.key", "owners": keys},
            "schema": SCHEMA,
        }
        (home / "node.toml").write_text(to_toml(tables))
        files.append(home / "node.toml")
    tables = describe_task(Task(MaskedMoments(), goal(), SEEDED))
    tables |= {"schema": SCHEMA, "run": {"rounds": 1, "seed": 11}, "clients": {"samples": samples}}
    made = Deployment.build(tables, "run.toml")
    result: Any = serve(made, NAME, LocalPost(files), tmp_path / "run")
    (tmp_path / "ids.txt").write_text("p82\np80\n")
    out = tmp_path / "out.csv"
    multiplied_remote.predict_ids(made, NAME, LocalPost(files), tmp_path / "run", tmp_path / "ids.txt", out)
    rows = [line.split(",") for line in out.read_text().splitlines()]
    asked = [people[i] for i in (82, 80)]
    assert rows[0] == ["id", "prediction", "probability of no", "probability of yes"]
    assert [row[1] for row in rows[1:]] == result.predict(asked).tolist()
    chances = [[float(each) for each in row[2:]] for row in rows[1:]]
    np.testing.assert_allclose(chances, result.predict_proba(asked), atol=2 * 2.0**-33)
