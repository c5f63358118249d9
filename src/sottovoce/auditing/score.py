"""The statistic of the game that trusts nothing: a score of the messages, learnt on pilot runs."""

from collections.abc import Callable

import numpy as np

from sottovoce.auditing import statistics as audit_statistics
from sottovoce.auditing.finding import Finding, compare, finding
from sottovoce.auditing.game import Game, Heard, Player, Progress, streams_of


def by_score(game: Game, runs: int, seed: int, confidence: float, progress: Progress) -> Finding:
    at_once = min(game.at_once, max(16, runs // 4))
    players = [Player(game, side, at_once, runs) for side in (0, 1)]
    row = game.neighbours.row
    directions = None if row is None else np.kron(np.eye(game.objective.loss.outputs), row)
    pilot: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    tested: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])

    def heard(side: int, what: str) -> np.ndarray:
        messages = Heard(at_once, game.neighbours.client, directions)
        players[side].play(streams_of(seed, what, at_once), messages)
        return messages.numbers()

    def play(side: int, turn: int) -> bool:
        """As many pilot runs, which share their noise so that differences show, as runs to test on, which do not."""
        mine = heard(side, f"pilot {turn}"), heard(side, f"score {turn} {side}")
        pilot[side].append(mine[0])
        tested[side].append(mine[1])
        return True

    played, interrupted = in_turns(play, 2 * at_once, runs, progress, "runs")
    turns = played // (4 * at_once)  # what one side was interrupted in is left out
    first, second = (np.concatenate(pilot[side][:turns] + tested[side][:turns]) for side in (0, 1))
    useful = np.any(np.abs(first - first[:1]) > 0, axis=0) | np.any(first[:1] != second[:1], axis=0)

    def bound(_: slice, delta: float) -> float:
        return audit_statistics.epsilon_from_seen(first[:, useful], second[:, useful], delta, confidence)

    found = compare(game, bound, last_only=None)
    assert found is not None
    evidence = f"every upload of the client and every broadcast, along the record, {game.rounds} rounds"
    return finding(game, "score", evidence, played, confidence, found, interrupted)


def in_turns(
    play: Callable[[int, int], bool], at_once: int, runs: int, progress: Progress, what: str
) -> tuple[int, bool]:
    """Play both sides in turn until `runs` are played: (how many were, whether it was cut short)."""
    played = 0
    try:
        for turn in range(-(-runs // (2 * at_once))):
            for side in (0, 1):
                if not play(side, turn):
                    return 0, False
            played += 2 * at_once
            progress(what, min(played, runs), runs)
    except KeyboardInterrupt:
        if played == 0:
            raise
        return played, True
    return played, False
