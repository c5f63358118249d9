"""The client's steps. Every step writes to disk what it binds itself to before it returns what is sent.

Wherever it is killed: what was not written was not sent. A set-up whose state is lost is made again, with new secrets;
a round whose upload was not written is lost for this client; one whose upload was written gets the same bytes again.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from secrets import token_bytes

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation import masks, messages, rules, shamir
from sottovoce.deploy.aggregation.messages import NONCE, Announcement
from sottovoce.deploy.aggregation.plan import KEY, Plan
from sottovoce.deploy.aggregation.state import ANNOUNCED, OF_STAGE, READY, SHARED, State, secrets_of, shares_of, sweep
from sottovoce.deploy.aggregation.store import Store
from sottovoce.deploy.limits import Refused

_ONCE = bytes(12)  # the nonce of a box: its key is used for it alone


class Client:
    """One client of the protocol.

    Parameters
    ----------
    plan
        What it agreed to, with the keys of the roster from its own file.
    key
        Its Ed25519 key, which signs and does nothing else.
    store
        Where it remembers this set-up.
    """

    def __init__(self, plan: Plan, key: Ed25519PrivateKey, store: Store) -> None:
        self.plan, self._key, self._store = plan, key, store
        public = key.public_key().public_bytes_raw()
        check.require(public in plan.roster, "sums", "this client's key must be on the roster")
        self.i = plan.roster.index(public)

    # --------------------------------------------------------------------------------------------------------- set-up

    def announce(self, attempt: bytes) -> bytes:
        """New secrets for every round. Whatever was agreed on before is deleted, and can be opened no more.

        `attempt`: 32 bytes by which the server tells a new set-up from a question that it asks again.
        """
        plan, i, state = self.plan, self.i, self._state()
        if state is not None and state.stage == ANNOUNCED and state.attempt == attempt:
            return self._announced()[1]
        rules.must_be_another_attempt(state, attempt)
        sweep(self._store, None)
        box, nonce = token_bytes(KEY), token_bytes(NONCE)  # S1: e_i
        secrets = [(shamir.draw(), shamir.draw()) for _ in range(plan.rounds)]  # S1: b_i^k, p_i^k
        public = [_public(masks.pair_key(plan, k, i, p)) for k, (_, p) in enumerate(secrets, plan.first)]  # S1: X_i^k
        sealed = [masks.commitment(plan, k, i, b) for k, (b, _) in enumerate(secrets, plan.first)]
        signed = Announcement(i, nonce, _public(_box(box)), tuple(public), tuple(sealed)).signed(plan, self._key)
        self._store.write(OF_STAGE[ANNOUNCED], box + signed + b"".join(messages.pack_shares(pair) for pair in secrets))
        self._settle(State(ANNOUNCED, plan.digest, attempt))
        return signed  # S1 →

    def share(self, announcements: bytes) -> bytes:
        """For each peer one ciphertext with its shares of b_i^k and p_i^k, for all rounds."""
        plan, state, run = self.plan, self._state(), run_of(self.plan, announcements)  # S2: run
        if state is not None and state.stage == SHARED and state.run == run:
            return self._shared()[3]
        state = rules.must_be_at(state, ANNOUNCED)
        box, signed, secrets = self._announced()
        parts = messages.pieces("S2 question", announcements, plan.n, len(signed))
        rules.must_be_its_own(signed, parts[self.i])
        peers = [rules.must_be_announced(plan, j, part) for j, part in enumerate(parts)]  # S2: pinned keys
        pairs = messages.pieces(OF_STAGE[ANNOUNCED], secrets, plan.rounds, messages.SHARES)
        held = self._split(pairs)
        boxes = b"".join(self._seal(run, peer, box, held[peer.i]) for peer in peers if peer.i != self.i)
        keys = [b"".join(peer.keys[place] for peer in peers) for place in range(plan.rounds)]
        of_rounds = {secrets_of(plan.first + place): pairs[place] + keys[place] for place in range(plan.rounds)}
        self._store.write_all(of_rounds)
        self._store.write(OF_STAGE[SHARED], box + b"".join(peer.box for peer in peers) + held[self.i] + boxes)
        self._settle(State(SHARED, plan.digest, state.attempt, run))
        return boxes  # S2 →

    def receive(self, run: bytes, boxes: bytes) -> None:
        """The shares of all peers. One is missing or false: nothing is uploaded, and it must be set up again."""
        plan, state = self.plan, self._state()
        if state is not None and state.stage == READY and state.run == run:
            return
        state = rules.must_be_at(state, SHARED)
        rules.must_be_this_run(state, run)
        box, keys, own_shares, _ = self._shared()
        parts = messages.pieces("S3 question", boxes, plan.n - 1, messages.box_length(plan))
        parts.insert(self.i, b"")
        held: list[list[bytes]] = []
        for j, peer in enumerate(messages.pieces(OF_STAGE[SHARED], keys, plan.n, KEY)):
            shares = own_shares if j == self.i else self._unseal(run, j, box, peer, parts[j])
            held.append(messages.pieces("box", shares, plan.rounds, messages.SHARES))
        rounds = range(plan.rounds)
        self._store.write_all({shares_of(plan.first + k): b"".join(shares[k] for shares in held) for k in rounds})
        self._settle(replace(state, stage=READY))  # S3: e_i is deleted

    # --------------------------------------------------------------------------------------------------------- rounds

    def uploaded(self, run: bytes, k: int, question: bytes) -> bytes | None:
        """What it uploaded in round k, if it did, to the same question; refused once it gave shares in that round."""
        state = self._ready(run)
        if state.k != k or k == 0:
            return None
        rules.must_be_the_same_question(state, question)
        return state.reply

    def upload(self, run: bytes, k: int, question: bytes, width: int, numbers: Callable[[], Words]) -> bytes:
        """y_i = u_i + PRG(b_i^k) ± pair masks with all of the roster.

        `numbers` charges, computes and draws noise: u_i, of `width` numbers. It is called once all checks are passed,
        and never for a round that was uploaded. `question` is a digest of what it answers.
        """
        before = self.uploaded(run, k, question)
        if before is not None:
            return before
        state = self._ready(run)
        rules.must_be_a_new_round(self.plan, state, k)  # R1: the counter
        mask = self._mask(run, k, width)
        u = numbers()  # R1: charge, x + ξ
        good = u.dtype == np.uint64 and u.shape == (width,)
        check.require(good, "sums", f"an upload must have {width} unsigned integers of 64 bits")
        masked = (u + mask).astype("<u8").tobytes()  # R1: y_i, modulo 2^64
        fresh = replace(state, k=k, question=question, signed=None, given=False, reply=masked)
        self._settle(fresh)  # R1: on disk; p_i^k, b_i^k, earlier shares are deleted
        return masked  # R1 →

    def stand_for(self, run: bytes, k: int, members: frozenset[int]) -> bytes:
        """The server names U. It is the whole roster: shares of b_j^k for all j. Else: a signature of (run, k, U)."""
        state = self._may_open(run, k, members)  # R2: checks
        if members == self.plan.everyone:
            return self._give(state, members)  # R2 → shares
        self._settle(replace(state, signed=members))  # R2: U is written down
        return self._key.sign(messages.about_set(self.plan, run, k, members))  # R2 → signature

    def reveal(self, run: bytes, k: int, members: frozenset[int], signatures: dict[int, bytes]) -> bytes:
        """A quorum signed U: shares of b_j^k for j in U, of p_j^k for j not in U."""
        state = self._may_open(run, k, members)  # R3: the same checks
        rules.must_have_a_quorum(self.plan, state, members, signatures)  # R3: Q signatures
        return self._give(state, members)  # R3 →

    # ------------------------------------------------------------------------------------------------------ their parts

    def _may_open(self, run: bytes, k: int, members: frozenset[int]) -> State:
        """The checks of R2 and R3."""
        state = self._ready(run)
        rules.must_be_open(state, k)
        rules.must_be_large(self.plan, members)
        rules.must_be_the_set_it_signed(state, members)
        return state

    def _give(self, state: State, members: frozenset[int]) -> bytes:
        """One share of each client, of b or of p and never of both, once. The round's shares are deleted first."""
        if rules.is_given(state):
            return state.reply
        held = messages.pieces("shares", self._read(shares_of(state.k)), 2 * self.plan.n, shamir.BYTES)
        answer = b"".join(held[2 * j if j in members else 2 * j + 1] for j in range(self.plan.n))
        self._settle(replace(state, signed=members, given=True, reply=answer))
        return answer

    def _mask(self, run: bytes, k: int, width: int) -> Words:
        """All that covers the upload of round k."""
        plan, i = self.plan, self.i
        secrets, keys = messages.cut("secrets", self._read(secrets_of(k)), messages.SHARES, plan.n * KEY)
        b, p = messages.read_shares("secrets", secrets, 2)
        pair = masks.pair_key(plan, k, i, p)
        mask = masks.own_mask(run, k, i, b, width)
        for j, key in enumerate(messages.pieces("secrets", keys, plan.n, KEY)):
            if j == i:
                continue
            try:
                mask += masks.pair_mask(run, k, i, j, pair, key, width)
            except ValueError:
                why = f"sums: the key of client {j} for round {k} is no key; set up again without it"
                raise Refused(wire.SET_UP, why) from None
        return mask

    def _split(self, pairs: Sequence[bytes]) -> list[bytes]:
        """For each client its shares of b_i^k and p_i^k, for all rounds."""
        plan = self.plan
        held: list[list[int]] = [[] for _ in range(plan.n)]
        for pair in pairs:
            for secret in messages.read_shares("secrets", pair, 2):
                for shares, share in zip(held, shamir.split(secret, plan.quorum, plan.n), strict=True):
                    shares.append(share)
        return [messages.pack_shares(shares) for shares in held]

    def _seal(self, run: bytes, peer: Announcement, box: bytes, shares: bytes) -> bytes:
        """The ciphertext from this client to a peer."""
        try:
            key = masks.box_key(run, self.i, peer.i, _box(box), peer.box)
        except ValueError:  # a point of small order
            raise Refused(wire.SET_UP, f"sums: the box key of client {peer.i} is no key; set up without it") from None
        return ChaCha20Poly1305(key).encrypt(_ONCE, shares, run)

    def _unseal(self, run: bytes, j: int, box: bytes, peer: bytes, sealed: bytes) -> bytes:
        """What client j sealed for this client in this run."""
        try:
            key = masks.box_key(run, j, self.i, _box(box), peer)
            shares = ChaCha20Poly1305(key).decrypt(_ONCE, sealed, run)
            messages.read_shares("box", shares, 2 * self.plan.rounds)
        except (InvalidTag, ValueError):
            sweep(self._store, None)
            why = f"sums: the shares of client {j} are not for this client in this run; set up again without it"
            raise Refused(wire.SET_UP, why) from None
        return shares

    def _announced(self) -> list[bytes]:
        """What S1 kept: e_i, its own announcement, and b_i^k, p_i^k for all rounds."""
        plan, file = self.plan, OF_STAGE[ANNOUNCED]
        return messages.cut(file, self._read(file), KEY, Announcement.length(plan), plan.rounds * messages.SHARES)

    def _shared(self) -> list[bytes]:
        """What S2 kept: e_i, the box keys of all, its own shares, and what it sent."""
        plan, file, shares = self.plan, OF_STAGE[SHARED], self.plan.rounds * messages.SHARES
        sent = (plan.n - 1) * messages.box_length(plan)
        return messages.cut(file, self._read(file), KEY, plan.n * KEY, shares, sent)

    def _state(self) -> State | None:
        return State.read(self._store, self.plan)

    def _ready(self, run: bytes) -> State:
        """Its state, when it is asked in a round. What a crash left behind is deleted before anything else is done."""
        state = rules.must_be_at(self._state(), READY)
        rules.must_be_this_run(state, run)
        sweep(self._store, state)
        return state

    def _settle(self, state: State) -> None:
        """On disk: how far it is now. Then what is no longer needed is deleted."""
        state.write(self._store, self.plan)
        sweep(self._store, state)

    def _read(self, name: str) -> bytes:
        content = self._store.read(name)
        if content is None:
            raise Refused(wire.SET_UP, "sums: a part of what it agreed on is gone; set up again")
        return content


def run_of(plan: Plan, announcements: bytes) -> bytes:
    """SHA-256(plan, all S1 messages in roster order): the name of the run, with every client's nonce in it."""
    return hashlib.sha256(masks.label("run", plan.digest, announcements)).digest()


def _box(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(secret)


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
