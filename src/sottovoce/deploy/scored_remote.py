"""Scores of new samples from the owners of split columns on other machines: the server sees sums of their parts alone.

`sottovoce server predict` runs this over the nodes of a study.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import read_bytes, utf8
from sottovoce.deploy import announcing, scoring, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.multiplied_remote import Again, MultipliedRemote
from sottovoce.deploy.remote import Post, TooFewAnswers
from sottovoce.experiment import predict, saved
from sottovoce.experiment.vertical_result import VerticalResult
from sottovoce.privacy.masked_products import opened_scores

_ATTEMPTS = 4


class ScoredRemote(MultipliedRemote):
    """The same owners, asked about new samples. Parameters as of `Remote`."""

    def scores(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        """Scores of the samples with these ids: (ids,), or one column per class for softmax."""
        parts = [ids[start : start + scoring.MOST_IDS] for start in range(0, len(ids), scoring.MOST_IDS)]
        return np.concatenate([self._some(result, part) for part in parts])

    def _some(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        for _ in range(_ATTEMPTS):
            try:
                return self._asked_once(result, ids)
            except Again:
                continue  # a reply was lost, and its masks with it: another question, under others
        raise TooFewAnswers("scores: the owners' replies were lost again and again; ask another time")

    def _asked_once(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        names, everyone = self._deployment.clients.names, range(self.n)
        terms = scoring.pack_names(secrets.token_hex(32), names)
        begun = self._each(1, wire.SCORE_BEGIN, [(m, terms, announcing.length(1)) for m in everyone])
        announced, outputs = b"".join(begun), result.objective.loss.outputs
        parts = [scoring.pack_question(announced, result.party_model(m), ids) for m in everyone]
        masked = self._each(1, wire.SCORES, [(m, parts[m], 8 * len(ids) * outputs) for m in everyone])
        shape = (len(ids),) if outputs == 1 else (len(ids), outputs)
        return opened_scores([np.frombuffer(part, dtype="<u8").astype(np.uint64).reshape(shape) for part in masked])


def predicted_scores(
    deployment: Deployment, name: str, post: Post, result: VerticalResult, ids: Sequence[str]
) -> np.ndarray:
    """Scores of new samples by the model of a finished run, from all owners behind `post`."""
    clients = deployment.clients
    check.require(deployment.task.split is not None, "predict", "between machines it is for runs of masked-moments")
    must_be_ids("predict", ids)
    met = post.statuses(clients.wait)
    missing = [who for m, who in enumerate(clients.names) if m not in met]
    if missing:
        raise TooFewAnswers(f"predict: every owner has a part of each score. Missing: {', '.join(missing)}")
    rows, sizes = sum(status.size for status in met.values()), np.ones(len(clients.names), dtype=int)
    remote = ScoredRemote(deployment, name, post, sizes, deployment.settings.engine, rows)
    return remote.scores(result, ids)


def predict_ids(deployment: Deployment, name: str, post: Post, run: Path, file: Path, out: Path) -> int:
    """Write the predictions for a file of ids, one on each line, by the model in a run's folder; returns how many."""
    ids, result = read_ids(file), cast(VerticalResult, saved.load_result(run))
    scores = predicted_scores(deployment, name, post, result, ids)
    predict.write_new(out, predict.to_csv({"id": ids} | predict.of_scores(result, scores)))
    return len(ids)


def read_ids(file: Path) -> list[str]:
    """The ids in a file, one on each line; refuses none, repeated ones and such as no owner would read."""
    text = utf8(str(file), read_bytes(file), "ids, one on each line")
    ids = [line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    must_be_ids(str(file), ids)
    return ids


def must_be_ids(where: str, ids: Sequence[str]) -> None:
    distinct = 0 < len(ids) == len(set(ids)) and all(0 < len(each) <= scoring.LONGEST_ID for each in ids)
    rule = f"must hold ids, at least one, all different and of at most {scoring.LONGEST_ID} characters"
    check.require(distinct, where, rule)
