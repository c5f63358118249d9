"""What guarantees say of noise, units and who sees sums, by the names of settings."""

OBSERVER_OF_SUMS = (
    "the server, at most {colluders} of the other clients who share what they know with it, and anyone else who sees "
    "every opened sum, every masked message and the model; as long as at least {least} of the {roster} clients are in "
    "every sum, and nobody breaks X25519, ChaCha20, SHA-256 or Ed25519"
)
NOISE = {
    "seeded": "simulation: pseudo-random, repeatable, in floating point; this holds for the mechanism, not against "
    "someone who knows the seed",
    "forgotten": "pseudo-random, in floating point, of a seed that the operating system drew and that is kept nowhere; "
    "this holds for the mechanism, not against someone who can read this machine's memory while it runs",
    "forgotten discrete": "discrete, pseudo-random, of a seed that the operating system drew and that is kept nowhere; "
    "this holds for the mechanism, not against someone who can read this machine's memory while it runs",
    "discrete": "simulation: discrete noise, pseudo-random and repeatable; this holds for the mechanism, not against "
    "someone who knows the seed",
    "secure": "discrete noise from the operating system's generator",
}
UNITS = {
    ("record", "replace-one"): "one record of one client, replaced by any other",
    ("record", "add-remove"): "one record of one client, there or blank (how many there are is public)",
    ("client", "replace-one"): "one whole client, its data replaced by any other",
}
COLUMN_UNITS = {
    "party": "all columns of one party, replaced by any others",
    "column": "one column of one party, replaced by any other",
    "record": "one record's entries at one party, replaced by any others",
}
