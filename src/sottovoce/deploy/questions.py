"""Whether a question may be asked of a client at all: by what it is about, and by the client's own file."""

from sottovoce.core import codec
from sottovoce.core.round import State
from sottovoce.core.shapes import declared
from sottovoce.deploy import held_out, wire
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.limits import Limits, Refused
from sottovoce.deploy.own_data import Own, OwnRows
from sottovoce.deploy.refusals import bad_ask

_OTHER_KIND = "this is for columns that are split, or needs labels that this client has not"


def hold_layout(assignment: Assignment, limits: Limits, data: Own, rows: OwnRows, number: int) -> None:
    """Refuse the other kind of federation, and experiments that show more of the labels than allowed.

    `number`: of this client.
    """
    split, labelled = assignment.split_columns, bool(rows.labels)
    why = "its file does not say how its samples are in order with the other parties' (id or same_order)"
    limits.allow(not split or data.columns, why)
    if not split and not labelled:
        raise Refused(wire.BAD_ASK, _OTHER_KIND)
    if assignment.task.split is not None:
        _hold_products(assignment, limits, data, rows, number)
    elif split and labelled:
        limits.hold_labels(assignment.task)


def _hold_products(assignment: Assignment, limits: Limits, data: Own, rows: OwnRows, number: int) -> None:
    """Refuse products of other tables than this owner has, or of samples in an order that tells something of them."""
    why = "products need samples in the order of their salted ids (id and salt): the order of a file can tell dates"
    limits.allow(bool(data.id and data.salt), why)
    algorithm = assignment.task.masked_moments
    split, (samples, columns) = algorithm.split, rows.X.shape
    fits = number < split.owners and split.widths[number] == columns and algorithm.samples == samples
    if not fits or split.outputs != assignment.task.objective.loss.outputs:
        raise Refused(wire.BAD_ASK, "products: its columns, its samples or the loss are others than the server says")
    if number == split.holder and not rows.labels:
        raise Refused(wire.BAD_ASK, "this client holds no labels")


def hold_what(ask: wire.Ask, assignment: Assignment, labelled: bool) -> None:
    """Refuse a kind of question that does not belong to this experiment."""
    if assignment.task.rounds < ask.k and ask.what != wire.HISTOGRAM:
        raise Refused(wire.BAD_ASK, f"round {ask.k} is beyond the {assignment.task.rounds} of this experiment")
    if assignment.task.privacy.sums != (ask.what in wire.SUMS):  # such an answer has a share of the noise only
        raise Refused(wire.BAD_ASK, "where the server sees sums only, answers leave under masks, and nowhere else")
    of_products = (*wire.PRODUCTS, wire.SCORE_BEGIN, wire.SCORES)
    multiplied = assignment.task.split is not None
    if (multiplied and ask.what not in (wire.ROUND, *of_products)) or (not multiplied and ask.what in of_products):
        raise Refused(wire.BAD_ASK, "where products are asked for, nothing else is; and nowhere else are they")
    if multiplied and ask.k != 1:
        raise Refused(wire.BAD_ASK, "products are asked for in round 1, and once")
    if ask.what == wire.HISTOGRAM:
        held_out.hold(ask, assignment)
    elif not assignment.split_columns and ask.what not in (wire.ROUND, *wire.SUMS):
        raise Refused(wire.BAD_ASK, _OTHER_KIND)
    if ask.what in (wire.PROX, wire.SLOPE) and not labelled:
        raise Refused(wire.BAD_ASK, "this client holds no labels")


def broadcast(ask: wire.Ask, assignment: Assignment, limits: Limits, rows: OwnRows) -> State:
    """The broadcast, which must look like one that this algorithm makes."""
    algorithm, (samples, columns) = assignment.task.algorithm, rows.X.shape
    dim = samples if assignment.split_columns else columns * assignment.task.objective.loss.outputs
    with bad_ask("the broadcast does not fit: "):
        down = wire.unpack(ask.down, algorithm.down, declared(algorithm, algorithm.down, dim))
    limits.hold_broadcast(codec.to_arrays(down))
    return down
