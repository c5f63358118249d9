"""Sums only: the server learns the sum of the clients' uploads modulo 2^64, and nothing else of them.

The protocol of Bonawitz et al. (2017) against an active server, made for owners who know each other. No network and no
disk is assumed here beyond a small `Store`: messages are bytes that somebody carries.

| symbol | is | here |
|---|---|---|
| n, t | clients on the roster; at most so many of them share what they know with the server | `Plan.n`, `colluders` |
| least | the fewest clients whose sum may be opened | `Plan.least` |
| Q | floor((n + t)/2) + 1: signatures that a set needs, and threshold of shares | `Plan.quorum` |
| run | SHA-256 of the plan and of every client's first message, its nonce in it | `run` |
| b_i^k, p_i^k | secrets of client i for round k: of its own mask, and of its X25519 pair X_i^k | `client.py` |
| e_i, E_i | the X25519 pair by which client i is sent its shares | `client.py` |
| u_i, y_i | the noisy integers of client i, and what it uploads | `upload` |
| U | the clients whose sum is opened | `members` |

Set-up, for up to 100 rounds: S1 `announce`, S2 `share`, S3 `receive`. A round: R1 `upload`, R2 `stand_for`, and
where somebody is missing R3 `reveal`; the server then can `open` the sum. What a client checks is in `rules.py`, a
function for each rule; what it writes down and deletes is in `state.py`.

Why only the sum is seen: one U per round has Q signatures, since each honest client stands for one set. An honest
client in U: its own mask may be opened, its pair masks with honest clients in U never; the only combination of uploads
in which they cancel is the sum over U. An honest client not in U: its pair secret may be opened, its own mask never.
The whole roster needs no signatures: who gave shares for it signs no other set, so that with another set signed by Q
at most n − Q + t < Q shares of an own mask outside that set are there.

Departures
----------
- S3 is a message of its own, not a part of the first broadcast: who cannot take part is then known before anybody is
  charged.
- A round's number must be above the last, not one more: a client that was away in a round comes back in the next.
- A question that comes a second time gets the same bytes again, in every step: messages are lost. Shares that were
  given are kept for that until the next upload; the server has them already.
- S1 holds a commitment to each b_i^k, so that false shares of a client end in no sum instead of a wrong one;
  and its giver is left out if Q others answered.
"""
