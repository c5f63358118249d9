"""`sottovoce verify`: runs of every kind hold, and whatever was tampered with is noticed or does not matter."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import sottovoce as sv
from sottovoce.algorithms import DPSGD, PVP, ADMMSharing, FedAvg, FedPLT, FedSPDDP
from sottovoce.auditing import verify_charges
from sottovoce.auditing.verify import BROKEN, VERIFIED, WORD, Verdict, verify
from sottovoce.core.check import InvalidInput, MissingData, SottovoceError
from sottovoce.core.participation import KOfN
from sottovoce.deploy.server import serve
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.histories import Kept, Stated
from tests.deployments import (
    COLUMNS as PARTIES,
)
from tests.deployments import (
    NAME,
    SECURE,
    LocalPost,
    column_deployment,
    deployment,
    write_nodes,
    write_parties,
)
from tests.run_folders import (
    columns,
    cover_up,
    edit,
    estimated,
    flip,
    leaves,
    read,
    remanifest,
    split_columns,
    three_runs,
    trained,
)

ADD_REMOVE = sv.Proven(1.0, 1e-3, 1.0, relation="add-remove")
KINDS: dict[str, Callable[[], sv.Result]] = {
    "full batches": trained,
    "Poisson batches": lambda: trained(DPSGD(batch=10), ADD_REMOVE),
    "batches of fixed size": lambda: trained(DPSGD(batch=10)),
    "secure noise": lambda: trained(privacy=sv.Proven(1.0, 1e-3, 1.0, noise="secure")),
    "Laplace": lambda: trained(privacy=sv.Proven(1.0, 0.0, 1.0, mechanism="laplace")),
    "whole clients": lambda: trained(FedAvg(), sv.Proven(5.0, 1e-3, 1.0, unit="client")),
    "sums": lambda: trained(DPSGD(), sv.Proven(1.0, 1e-3, 1.0, observer="sums")),
    "sums of whole clients": lambda: trained(
        FedAvg(), sv.Proven(5.0, 1e-3, 1.0, unit="client", observer="sums", least=2, colluders=0)
    ),
    "some take part": lambda: trained(participation=KOfN(2), rounds=9),
    "at most so often": lambda: trained(privacy=sv.Proven(1.0, 1e-3, 1.0, participations=2), rounds=5),
    "arg-mins": lambda: trained(PVP(rho=0.3)),
    "proximal steps": lambda: trained(FedSPDDP(variant="P")),
    "hidden steps": lambda: trained(FedPLT(variant="B")),
    "repetitions": lambda: trained(participation=KOfN(2), rounds=4, runs=3),
    "an estimator, with ranges": estimated,
    "columns, records": split_columns,
    "columns, repeated": lambda: split_columns(runs=2),
    "columns, no model": lambda: trained(
        ADMMSharing(), sv.ProvenColumns(5.0, 1e-3, unit="party", bound=5.0, model=False), federation=columns()
    ),
}


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Of N(0, 1) against N(mu, 1), from the definition."""
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    return float(brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, 100.0, xtol=1e-13))  # type: ignore[arg-type]


def gaussian_mu(epsilon: float, delta: float) -> float:
    return float(brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-3, 100.0, xtol=1e-14))  # type: ignore[arg-type]


def broken(found: Verdict) -> list[str]:
    return [f"{one.about}: {one.words}" for one in found.checks if one.status == BROKEN]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_not_touched_holds(kind: str, tmp_path: Path) -> None:
    found = verify(KINDS[kind]().save(tmp_path / "run"))
    assert broken(found) == []
    assert found.holds
    assert found.guaranteed
    about = {one.about for one in found.checks if one.status == VERIFIED}
    assert about >= {"files", "seal", "chains", "epsilon", "noise", "statement", "text", "summary", "model"}
    assert any(one.status == WORD for one in found.checks)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_charges_alone_say_what_epsilon_is(factor: float) -> None:
    """A number that does not belong to the charges is noticed by the second accountant, whatever else says so too."""
    result = trained()
    said = result.guarantee
    assert said.epsilon is not None
    of_client = tuple(factor * epsilon for epsilon in said.epsilon_of_client)
    printed = replace(said, epsilon=factor * said.epsilon, epsilon_of_client=of_client)
    looks = dict(verify_charges.looks(replace(result, guarantee=printed)))
    with pytest.raises(InvalidInput, match="by a second accountant the charges cost"):
        looks["epsilon"]()


def test_three_runs_on_the_same_ledgers(tmp_path: Path) -> None:
    """The third run's statement is over all three, and names the bound on rows that only the second rested on."""
    results = three_runs(tmp_path / "ledgers")
    for number, result in enumerate(results):
        found = verify(result.save(tmp_path / f"run-{number}"))
        assert broken(found) == []
    first, second, third = (result.guarantee for result in results)
    assert "no row longer" not in first.text
    bound = "no row, and no row that could stand in its place, is longer than 1"
    for said in (second, third):
        assert said.unit.endswith("no row longer than 1")
        assert bound in [one.what for one in said.assumptions if one.answers == "promised by the user"]
        assert f"{bound} (promised by the user)" in said.text
    charges = results[2].charges
    assert charges is not None
    assert sum((charges.of(0).spent() or {}).values()) == 9
    assert third.epsilon == pytest.approx(gaussian_epsilon(np.sqrt(3) * gaussian_mu(1.0, 1e-3), 1e-3), rel=1e-9)


@pytest.mark.parametrize("how", ["rows", "secure", "columns"])
def test_a_deployed_run(how: str, tmp_path: Path) -> None:
    """The server's folder keeps every client's own rows; one that is silent at the end is taken at its word."""
    if how == "columns":
        made, files = column_deployment("admm-sharing", PARTIES, 3), write_parties(tmp_path)
    else:
        made, files = (
            deployment("dp-admm", SECURE, 3) if how == "secure" else deployment(rounds=3),
            write_nodes(tmp_path),
        )
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    found = verify(tmp_path / "run")
    assert broken(found) == []
    assert found.guaranteed
    assert result.charges is not None
    assert all(isinstance(history, Kept) for history in result.charges.histories)
    assert "stated by the owner" in result.guarantee.text
    said = (tmp_path / "run" / "charges.json").read_text()
    assert "salt" not in said
    assert "dataset" not in said
    assert not any(name in said for name in ("north", "south", "west"))


def test_a_client_that_is_silent_at_the_end(tmp_path: Path) -> None:
    class Silent(LocalPost):
        def statuses(self, wait: float) -> dict[int, Any]:
            return {i: status for i, status in super().statuses(wait).items() if i != 1 or wait > 0}

    result = serve(deployment(rounds=3), NAME, Silent(write_nodes(tmp_path)), tmp_path / "run")
    found = verify(tmp_path / "run")
    assert broken(found) == []
    assert isinstance(result.charges.of(1) if result.charges else None, Stated)
    assert any(one.about == "an owner" and "owner 1: epsilon 100" in one.words for one in found.checks)


@pytest.mark.parametrize("privacy", [sv.NoPrivacy(), sv.Published(1.0, 1e-4)], ids=["none", "published"])
def test_runs_that_promise_nothing(privacy: Any, tmp_path: Path) -> None:
    path = trained(privacy=privacy).save(tmp_path / "run")
    found = verify(path)
    assert found.holds
    assert not found.guaranteed
    assert any("no guarantee is stated" in one.words for one in found.checks)
    edit(path, "guarantee.json", lambda said: said.update(epsilon=1.0, delta=1e-3))
    cover_up(path)
    assert not verify(path).holds


# --------------------------------------------------------------------------------------------------------- tampering


def swap(name: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, other: Path) -> None:
        shutil.copy(other / name, folder / name)

    return change


def in_file(name: str, change: Callable[[Any], Any]) -> Callable[[Path, Path], None]:
    return lambda folder, other: edit(folder, name, change)


def field(**values: Any) -> Callable[[Path, Path], None]:
    return in_file("guarantee.json", lambda said: said.update(values))


def everywhere(epsilon: float) -> Callable[[Path, Path], None]:
    """Another epsilon in every file, with a text that says it."""

    def change(folder: Path, other: Path) -> None:
        for name in ("guarantee.json", "summary.json"):
            edit(folder, name, lambda said: said.update(epsilon=epsilon))

        def words(said: Any) -> None:
            said["epsilon_of_client"] = [epsilon] * 3
            said["text"] = said["text"].replace("(1, 0.001)", f"({epsilon:.6g}, 0.001)")
            (folder / "guarantee.txt").write_text(said["text"] + "\n")

        edit(folder, "guarantee.json", words)
        edit(
            folder, "summary.json", lambda said: said.update(privacy=said["privacy"].replace("1 (", f"{epsilon:.4g} ("))
        )

    return change


def row(number: int, **values: Any) -> Callable[[Path, Path], None]:
    return in_file("charges.json", lambda said: said["charges"]["histories"][0]["rows"][number].update(values))


def rows(change: Callable[[list[Any]], Any]) -> Callable[[Path, Path], None]:
    return in_file("charges.json", lambda said: change(said["charges"]["histories"][0]["rows"]) and None)


def in_details(number: int, old: str, new: str) -> Callable[[Path, Path], None]:
    def change(list_: list[Any]) -> None:
        assert old in list_[number]["details"]
        list_[number]["details"] = list_[number]["details"].replace(old, new)

    return rows(change)


def louder(factor: float) -> Callable[[Path, Path], None]:
    """Claim more noise (or less) than there was, wherever it is said."""

    def change(said: Any) -> None:
        for event in (said["charges"]["event"], *(one["event"] for one in said["charges"]["histories"][0]["charges"])):
            event["noise_multiplier"] *= factor

    return in_file("charges.json", change)


def both(*changes: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def change(folder: Path, other: Path) -> None:
        for one in changes:
            one(folder, other)

    return change


def of_event(**values: Any) -> Callable[[Path, Path], None]:
    def change(said: Any) -> None:
        said["charges"]["event"].update(values)
        for one in said["charges"]["histories"][0]["charges"]:
            one["event"].update(values)

    return in_file("charges.json", change)


def config(table: str, **values: Any) -> Callable[[Path, Path], None]:
    return in_file("config.toml", lambda said: said[table].update(values))


FILES = ("config.toml", "charges.json", "guarantee.json", "guarantee.txt", "history.parquet", "model.npz",
         "summary.json", "versions.json")  # fmt: skip
BY_HAND: dict[str, Callable[[Path, Path], Any]] = {
    **{f"{name} is missing": lambda folder, other, name=name: (folder / name).unlink() for name in FILES},
    **{f"{name} of another run": swap(name) for name in FILES if name != "versions.json"},
    "manifest of another run": swap("manifest.json"),
    "manifest is missing": lambda folder, other: (folder / "manifest.json").unlink(),
    "one byte more": lambda folder, other: (folder / "guarantee.txt").write_bytes(
        (folder / "guarantee.txt").read_bytes() + b"\n"
    ),
    "manifest without a file": in_file("manifest.json", lambda said: said["files"].pop("charges.json") and None),
    "manifest with a file outside": in_file("manifest.json", lambda said: said["files"].update({"../x": "0"})),
    "versions": in_file("versions.json", lambda said: said.update(sottovoce="9")),
}
# After these, chains, seal and manifest are made again: what is noticed is that the meaning does not fit.
SIMULATED: dict[str, Callable[[Path, Path], Any]] = {
    "epsilon": field(epsilon=0.5),
    "epsilon everywhere, smaller": everywhere(0.5),
    "epsilon everywhere, a little smaller": everywhere(0.999),
    "epsilon everywhere, larger": everywhere(1.2),
    "delta": field(delta=1e-6),
    "delta in the config": config("privacy", delta=1e-6),
    "unit": field(unit="one whole client, its data replaced by any other"),
    "unit in the config": config("privacy", unit="client"),
    "relation in the config": config("privacy", relation="add-remove"),
    "noise": field(noise="discrete noise from the operating system's generator"),
    "noise in the config": config("privacy", noise="secure"),
    "observer": field(observer="nobody"),
    "theorem": field(theorem="magic"),
    "assumptions dropped": field(assumptions=[]),
    "an assumption answered by the code": in_file(
        "guarantee.json", lambda said: [one.update(answers="checked in code") for one in said["assumptions"]] and None
    ),
    "constants": in_file("guarantee.json", lambda said: said["constants"].update(clip=0.5)),
    "something not covered left out": in_file("guarantee.json", lambda said: said["not_covered"].pop(1) and None),
    "accountant": field(accountant="intuition"),
    "text": in_file(
        "guarantee.json", lambda said: said.update(text=said["text"].replace("(1, 0.001)", "(0.1, 0.001)"))
    ),
    "printed text": lambda folder, other: (folder / "guarantee.txt").write_text("(0.1, 0.001)\n"),
    "clip in the config": config("privacy", clip=0.1),
    "budget in the config": config("privacy", epsilon=2.0),
    "rounds in the config": config("run", rounds=30),
    "another method in the config": config("algorithm", name="fed-avg"),
    "another mode in the config": config("privacy", mode="published"),
    "fewer clients in the config": config("data", clients=2),
    "more columns in the config": config("data", columns=3),
    "several runs in the config": config("run", runs=4),
    "summary, epsilon": in_file("summary.json", lambda said: said.update(epsilon=0.1)),
    "summary, rounds": in_file("summary.json", lambda said: said.update(rounds=2)),
    "summary, accuracy": in_file("summary.json", lambda said: said.update(objective=0.0)),
    "a charge removed": in_file("charges.json", lambda said: said["charges"]["histories"][0]["charges"].pop() and None),
    "a charge counted less": in_file(
        "charges.json", lambda said: said["charges"]["histories"][0]["charges"][0].update(count=2)
    ),
    "a charge added": in_file(
        "charges.json",
        lambda said: said["charges"]["histories"][0]["charges"].append(
            {"event": {"mechanism": "gaussian", "noise_multiplier": 9.0, "row_bound": 0.0}, "count": 1, "hash": ""}
        ),
    ),
    "more noise claimed": louder(2.0),
    "more noise and a smaller epsilon claimed": both(louder(2.0), everywhere(0.4687)),
    "less noise claimed": louder(0.5),
    "charges of a method with batches": of_event(sampling="poisson", rate=0.1, relation="add-remove"),
    "charges of another mechanism": of_event(mechanism="discrete-gaussian"),
    "charges that rest on a bound": of_event(row_bound=1.0),
    "charges taken away": in_file("charges.json", lambda said: said.update(charges=None)),
    "an owner without charges": in_file("charges.json", lambda said: said["charges"]["who"][0].pop() and None),
    "an owner stated instead": in_file(
        "charges.json",
        lambda said: said["charges"].update(histories=[{"stated": {"epsilon": 0.1, "word": "trust me"}}]),
    ),
    "charges of other rounds": in_file("charges.json", lambda said: said["charges"].update(rounds=2)),
    "model of another size": lambda folder, other: np.savez(folder / "model.npz", model=np.zeros(3)),
    "model without numbers": lambda folder, other: np.savez(folder / "model.npz", other=np.zeros(2)),
    "a later format": in_file("manifest.json", lambda said: said.update(format=3)),
}
LEDGERED: dict[str, Callable[[Path, Path], Any]] = {
    "a row removed": rows(lambda list_: list_.pop(5)),
    "the last row removed": rows(lambda list_: list_.pop()),
    "all earlier rows removed": rows(lambda list_: list_.__delitem__(slice(1, 9))),
    "the first row removed": rows(lambda list_: list_.pop(0)),
    "two rows changed places": rows(lambda list_: list_.insert(2, list_.pop(3))),
    "a row twice": rows(lambda list_: list_.append(copy.deepcopy(list_[-1]))),
    "a charge of less": in_details(2, '"noise_multiplier":4', '"noise_multiplier":44'),
    "a bound taken out": lambda folder, other: (folder / "charges.json").write_text(
        (folder / "charges.json").read_text().replace('row_bound\\":1.0', 'row_bound\\":0.0')
    ),
    "a charge hidden": row(3, details=None),
    "a charge of the first format": row(3, details=None, event={"mechanism": "gaussian", "noise_multiplier": 99.0}),
    "a charge that is a budget": row(3, kind="budget"),
    "the owner's name shown": row(0, details='{"owner":"somebody"}'),
    "another run": in_file("charges.json", lambda said: said["charges"].update(run="0" * 32)),
    "a charge of a later round": row(11, round=7),
    "time running backwards": row(5, time=1.0),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One untouched folder of each kind, and another run of the same shape beside it."""
    home = tmp_path_factory.mktemp("runs")
    trained().save(home / "simulated")
    trained(seed=5, privacy=sv.Proven(2.0, 1e-3, 1.0)).save(home / "other")
    three_runs(home / "ledgers")[-1].save(home / "ledgered")
    split_columns().save(home / "columns")
    return home


def refused(path: Path) -> str:
    """Why a folder is refused; "" if it holds."""
    try:
        found = verify(path)
    except SottovoceError as error:
        return str(error)
    return "" if found.holds else "; ".join(broken(found))


def tampered(home: Path, kind: str, tmp_path: Path, change: Callable[[Path, Path], Any]) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(home / kind, folder)
    change(folder, home / "other")
    return folder


@pytest.mark.parametrize("how", BY_HAND)
def test_a_file_that_was_touched_is_noticed(how: str, home: Path, tmp_path: Path) -> None:
    assert refused(tampered(home, "simulated", tmp_path, BY_HAND[how]))


@pytest.mark.parametrize("how", SIMULATED)
def test_a_changed_meaning_is_noticed_with_all_hashes_made_again(how: str, home: Path, tmp_path: Path) -> None:
    folder = tampered(home, "simulated", tmp_path, SIMULATED[how])
    cover_up(folder)
    why = refused(folder)
    assert why
    assert "SHA-256" not in why  # it is the meaning that was noticed


@pytest.mark.parametrize("how", LEDGERED)
@pytest.mark.parametrize("chains", ["as they were", "made again"])
def test_a_changed_ledger_is_noticed(how: str, chains: str, home: Path, tmp_path: Path) -> None:
    folder = tampered(home, "ledgered", tmp_path, LEDGERED[how])
    cover_up(folder) if chains == "made again" else remanifest(folder)
    assert refused(folder)


@pytest.mark.parametrize("name", ["config.toml", "model.npz", "charges.json"])
def test_files_of_another_run_are_noticed_by_the_seal(name: str, home: Path, tmp_path: Path) -> None:
    folder = tampered(home, "simulated", tmp_path, swap(name))
    remanifest(folder)
    assert "belongs to another" in refused(folder)


def test_how_many_kinds_of_tampering_are_tried() -> None:
    assert len(BY_HAND) + len(SIMULATED) + len(LEDGERED) >= 70


# ------------------------------------------------------------------------------------------------------- every field

NO_MATTER = {  # file: fields (with any numbers in their paths) that no guarantee depends on, and why
    "versions.json": {".*": "what else was installed"},
    "config.toml": {
        r"data\.(rows|smallest_client|largest_client)": "public sizes, used where batches are drawn",
        r"data\.row_bound": "in force for proximal steps and hidden steps only, and there it is in the charges",
        r"data\.holder": "who has the labels",
        r"objective\.lam": "noise is told in units of the sensitivity",
        r"algorithm\.(rho|c_w|balance|tol|b1)": "what is made of noisy answers costs nothing",
        r"run\.(seed|record_every)": "what was drawn, and how often it was looked at",
    },
    "charges.json": {
        r"charges\.histories\.\d+\.rows\.\d+\.(run|question)": "the name of an answer, once its chain is made again",
        r"charges\.histories\.\d+\.rows\.[37]\.round": "the same, in an earlier run",
        r"charges\.histories\.\d+\.rows\.[48]\.details": "a budget that the owner changed; what counts is spent",
        r"charges\.histories\.\d+\.rows\.11\.time": "when the last answer was given",
        r"charges\.(histories\.\d+|labels)\.(rows|charges)\.\d+\.hash": "made again from what stands there",
    },
}


def matters(name: str, path: tuple[Any, ...]) -> bool:
    told = ".".join(map(str, path))
    return not any(re.fullmatch(pattern, told) for pattern in NO_MATTER.get(name, {}))


@pytest.mark.parametrize("kind", ["simulated", "ledgered", "columns"])
def test_every_field_of_every_file(kind: str, home: Path, tmp_path: Path) -> None:
    """Each is changed by itself: as a hand would do it, and as somebody would who makes all hashes again."""
    flips = [
        (file, path)
        for file in sorted((home / kind).iterdir())
        if file.suffix in (".json", ".toml")
        for path in leaves(read(file))
        if path[:2] != ("charges", "histories") or path[2] == 0  # the other owners' lists are as the first one's
    ]
    assert len(flips) > 100
    for file, path in flips:
        folder = tmp_path / "run"
        shutil.copytree(home / kind, folder)
        before = (folder / file.name).read_bytes()
        edit(folder, file.name, lambda said, path=path: flip(said, path))
        assert (folder / file.name).read_bytes() != before
        assert refused(folder), (file.name, path)
        if file.name != "manifest.json":
            remanifest(folder) if path[0] == "seal" else cover_up(folder)
            assert refused(folder) or not matters(file.name, path), (file.name, path)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["model.npz", "history.parquet", "guarantee.txt"])
def test_every_byte_of_other_files(name: str, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(home / "simulated", folder)
    content = (folder / name).read_bytes()
    for place in [*range(0, len(content), max(1, len(content) // 40)), len(content) - 1]:
        (folder / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert refused(folder), place
    (folder / name).write_bytes(content)
    assert not refused(folder)


def test_other_files_are_named_and_do_no_harm(home: Path, tmp_path: Path) -> None:
    """`sottovoce report` writes its page into the folder."""
    folder = tampered(home, "simulated", tmp_path, lambda folder, other: (folder / "report.html").write_text("<p>"))
    found = verify(folder)
    assert found.holds
    assert any("report.html" in one.words for one in found.checks if one.status == WORD)


# ---------------------------------------------------------------------------------------------- what cannot be verified


def test_what_is_no_verifiable_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="no such run folder"):
        verify(tmp_path / "nothing")


def test_a_chain_is_no_signature(home: Path, tmp_path: Path) -> None:
    """Who may write everything can make another run: what shows it is the digest, kept elsewhere."""
    before = verify(home / "simulated").digest
    folder = tampered(home, "simulated", tmp_path, config("run", seed=17))
    cover_up(folder)
    found = verify(folder)
    assert found.holds
    assert found.digest != before


def test_an_epsilon_without_a_delta_is_refused_in_words(tmp_path: Path) -> None:
    folder = trained().save(tmp_path / "run")
    edit(folder, "guarantee.json", lambda said: said.update(delta=None))
    remanifest(folder)
    found = broken(verify(folder))
    for about in ("epsilon", "other numbers"):
        assert f"{about}: guarantee.json: must have a delta beside its epsilon" in found


def test_charges_survive_a_file(home: Path) -> None:
    for kind in ("simulated", "ledgered", "columns"):
        said = json.loads((home / kind / "charges.json").read_text())["charges"]
        assert Charges.from_dict(said).to_dict() == said
    with pytest.raises(InvalidInput, match="cannot be read"):
        Charges.from_dict({"run": ""})
