"""A server that keeps all it ever gets, tells clients whatever it wants, and opens whatever can be opened."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import masks, messages, shamir
from sottovoce.deploy.aggregation.state import secrets_of, shares_of
from sottovoce.deploy.limits import Refused
from tests.deploy.aggregation.group import QUESTION, Group, added, signing_key


def joined(shares: Mapping[int, int]) -> int:
    """The secret behind shares {x: f(x)}; they must be as many as the threshold, or more."""
    return shamir.combine(shamir.weights(list(shares)), list(shares.values()))


class LyingServer:
    """What it knows of each round: uploads, and shares of b_j and p_j by who gave them, those of colluders first."""

    def __init__(self, group: Group, colluders: Iterable[int] = ()) -> None:
        assert group.server is not None
        self.group, self.plan, self.run = group, group.plan, group.run
        self.colluders = frozenset(colluders)
        self.honest = sorted(self.plan.everyone - self.colluders)
        self.uploads: dict[tuple[int, int], Words] = {}
        self.shares: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)  # (b or p, k, j): {giver: share}
        for c in self.colluders:
            for k in range(1, self.plan.rounds + 1):
                held = messages.read_shares("", group.stores[c].files[shares_of(k)], 2 * self.plan.n)
                for j in range(self.plan.n):
                    self.shares["b", k, j][c], self.shares["p", k, j][c] = held[2 * j], held[2 * j + 1]

    # ---------------------------------------------------------------------------------------------------- what it asks

    def upload(self, i: int, k: int, question: bytes = QUESTION) -> Words:
        self.uploads[i, k] = self.group.upload(i, k, question)
        return self.uploads[i, k]

    def stand_for(self, i: int, k: int, named: Iterable[int]) -> bytes:
        """A signature, or shares, which it keeps."""
        named = frozenset(named)
        answer = self.group.client(i).stand_for(self.run, k, named)
        if named == self.plan.everyone:
            self._keep(i, k, named, answer)
        return answer

    def reveal(self, i: int, k: int, named: Iterable[int], signatures: Mapping[int, bytes]) -> None:
        named = frozenset(named)
        self._keep(i, k, named, self.group.client(i).reveal(self.run, k, named, dict(signatures)))

    def signed_by_colluders(self, k: int, named: Iterable[int], run: bytes | None = None) -> dict[int, bytes]:
        content = messages.about_set(self.plan, run or self.run, k, frozenset(named))
        return {c: signing_key(c).sign(content) for c in self.colluders}

    def _keep(self, i: int, k: int, named: frozenset[int], answer: bytes) -> None:
        for j, share in enumerate(messages.read_shares("", answer, self.plan.n)):
            self.shares["b" if j in named else "p", k, j][i] = share

    # -------------------------------------------------------------------------------------------------- what it can see

    def secret(self, kind: str, k: int, j: int) -> int | None:
        """b_j^k or p_j^k, where it has enough shares."""
        held = self.shares[kind, k, j]
        if len(held) < self.plan.quorum:
            return None
        return joined({giver + 1: share for giver, share in list(held.items())[: self.plan.quorum]})

    def visible(self, k: int) -> dict[frozenset[int], Words]:
        """All sums over sets of honest clients that can be computed, by set.

        A mask that is not known is as good as uniform. So a combination Σ c_i y_i of honest uploads tells something
        only if c_i = 0 where b_i is not known, and c_i = c_j where the pair mask of i and j is not known: it is
        constant on the connected parts of the graph of unknown pair masks, and 0 on a part with an unknown b.
        """
        b = {i: self.secret("b", k, i) for i in self.honest}
        p = {i: self.secret("p", k, i) for i in self.honest}
        uploaded = [i for i in self.honest if (i, k) in self.uploads]
        seen: dict[frozenset[int], Words] = {}
        for part in self._parts(p):
            if all(i in uploaded and b[i] is not None for i in part):
                seen[part] = added(self._stripped(i, k, part, b[i] or 0, p) for i in part)
        return seen

    def _parts(self, p: Mapping[int, int | None]) -> set[frozenset[int]]:
        """The connected parts: two clients share a mask that is not known if neither's pair secret is."""
        covered = frozenset(i for i in self.honest if p[i] is None)
        return ({covered} if covered else set()) | {frozenset({i}) for i in self.honest if i not in covered}

    def _stripped(self, i: int, k: int, part: frozenset[int], b: int, p: Mapping[int, int | None]) -> Words:
        """The upload of i without its own mask and without the pair masks that do not cancel within `part`."""
        plan, server = self.plan, self.group.server
        assert server is not None
        left = self.uploads[i, k] - masks.own_mask(self.run, k, i, b, self.group.width)
        place, width = k - plan.first, self.group.width
        key = server.peers[i].keys[place]
        for j in plan.everyone - part - {i}:
            secret = self._colluders_secret(j, k) if j in self.colluders else p[j] if p[i] is None else p[i]
            assert secret is not None
            if j in self.colluders or p[i] is None:  # as j subtracts it
                pair = masks.pair_key(plan, k, j, secret)
                left += masks.pair_mask(self.run, k, j, i, pair, key, width)
            else:
                pair = masks.pair_key(plan, k, i, secret)
                left -= masks.pair_mask(self.run, k, i, j, pair, server.peers[j].keys[place], width)
        return left

    def _colluders_secret(self, c: int, k: int) -> int:
        """What a colluder has never deleted."""
        return messages.read_shares("", self.group.stores[c].files[secrets_of(k)][:64], 2)[1]

    def tried(self, what, *arguments) -> object:
        """The answer, or None where it is refused."""
        try:
            return what(*arguments)
        except Refused:
            return None
