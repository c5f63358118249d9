import numpy as np
import pytest
from scipy.sparse import csr_array

import sottovoce as sv
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.problems.losses import Softmax
from tests.cases import goal, small

X = np.arange(12.0).reshape(6, 2)
Y = np.array([1.0, -1, 1, -1, 1, -1])


def test_rows_go_to_their_owners() -> None:
    groups = np.array(["b", "a", "b", "c", "a", "b"])
    federation = sv.Federation.from_arrays(X, Y, groups)
    assert federation.names == ("a", "b", "c")
    assert federation.sizes.tolist() == [2, 3, 1]
    assert np.array_equal(federation.X[:2], X[[1, 4]])
    assert np.array_equal(federation.y[2:5], Y[[0, 2, 5]])
    ordered = sv.Federation.from_arrays(X, Y, groups, owners=["c", "b", "a"])
    assert ordered.names == ("c", "b", "a")
    assert ordered.sizes.tolist() == [1, 3, 2]
    assert np.array_equal(ordered.X[:1], X[[3]])
    assert "rows" in repr(federation)
    assert str(X[0, 1]) not in repr(federation)


def test_rows_begin_with_a_line_of_the_cache_however_they_were_made() -> None:
    rng = np.random.default_rng(0)
    for rows in (3, 500):
        made = sv.Federation.from_arrays(rng.normal(size=(rows, 3)), np.ones(rows), np.arange(rows) % 2)
        for federation in (made, made.in_float32(), made.with_bias()):
            assert federation.X.ctypes.data % 64 == 0
            assert federation.X.flags.c_contiguous


def test_from_clients_agrees() -> None:
    groups = np.array([0, 0, 1, 1, 1, 1])
    one, other = sv.Federation.from_arrays(X, Y, groups), sv.Federation.from_clients([(X[:2], Y[:2]), (X[2:], Y[2:])])
    assert np.array_equal(one.X, other.X)
    assert np.array_equal(one.offsets, other.offsets)


def bad_feature(value: float) -> np.ndarray:
    broken = X.copy()
    broken[3, 1] = value
    return broken


G = np.zeros(6)


class Neither:
    """As pandas' NA: whether it equals itself is not said."""

    def __eq__(self, other: object) -> "Neither":  # type: ignore[override]
        return self

    __ne__ = __eq__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


NEITHER = Neither()


class Frame:
    """A frame of one column."""

    columns = ("hospital",)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.zeros((6, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sv.Federation.from_arrays(bad_feature(np.nan), Y, G),
            r"X must be finite, and the entry at \(3, 1\) is not \(1 such",
        ),
        (
            lambda: sv.Federation.from_arrays(bad_feature(np.inf), Y, G),
            r"X must be finite, and the entry at \(3, 1\) is",
        ),
        (lambda: sv.Federation.from_arrays(X, Y[:5], G), r"y must have one entry per row of X \(6\), got 5"),
        (lambda: sv.Federation.from_arrays(X, Y, G[:4]), r"groups must have one entry per row of X \(6\), got 4"),
        (
            lambda: sv.Federation.from_arrays(X, Y, ["a", None, "b", "a", float("nan"), "b"]),  # type: ignore[arg-type]
            r"every row must have an owner, and row 1 has none \(2 such rows\)\. Fill it in",
        ),
        (
            lambda: sv.Federation.from_arrays(X, Y, ["a", NEITHER, "b", "a", "b", "b"]),  # type: ignore[arg-type]
            r"every row must have an owner, and row 1 has none \(1 such rows\)",
        ),
        (lambda: sv.Federation.from_arrays(X, Y, Frame()), r"one axis, got \(6, 1\)\. Give frame\['hospital'\]"),
        (lambda: sv.Federation.from_arrays(X[:, 0], Y, G), "X must have 2 axes"),
        (lambda: sv.Federation.from_arrays([["a", "b"]], [1], [0]), "X must be numbers"),
        (lambda: sv.Federation.from_arrays(X, Y, G, owners=[0, 1]), "client 1 has no rows"),
        (lambda: sv.Federation.from_arrays(X, Y, G, owners=[1]), r"and row 0 names another \(6 such rows\)"),
        (
            lambda: sv.Federation.from_arrays(X, Y, G, row_bound=1.0),
            "longer than 1, but the longest is longer\\. Scale",
        ),
        (lambda: sv.Federation.from_clients([(X, Y), (X[:0], Y[:0])]), "client 1 has no rows"),
        (lambda: sv.Federation.from_clients([(X, Y), (X, Y[:2])]), "client 1: X and y must be equally long"),
        (
            lambda: sv.Federation.from_clients([(X, Y), (X[:, :1], Y)]),
            r"client 1 must have the first one's columns \(2,\)",
        ),
        (lambda: sv.Objective(sv.L2(1.0)), r"loss must be an object such as Logistic\(\), got L2\(lam=1.0\)"),  # type: ignore[arg-type]
        (lambda: sv.Objective(sv.Logistic(), scale="average"), "unknown scale 'average'"),  # type: ignore[arg-type]
        (lambda: sv.Proven(epsilon=0, delta=1e-5, clip=1), "Proven: epsilon must be > 0, got 0"),
        (lambda: sv.Proven(epsilon=1, delta=1.0, clip=1), r"Proven: delta must lie in \(0, 1\), got 1.0"),
        (lambda: sv.Proven(epsilon=1, delta=0.0, clip=1), r"Proven: delta must lie in \(0, 1\), got 0.0"),
        (lambda: sv.Proven(epsilon=1, delta=1e-5, clip=-1), "Proven: clip must be > 0, got -1"),
        (lambda: sv.Proven(epsilon=1, delta=1e-5, clip=1, unit="row"), "unknown unit 'row'"),  # type: ignore[arg-type]
        (lambda: sv.Proven(epsilon=1, delta=1e-5, clip=1, mechanism="laplace"), "delta must be 0 with Laplace"),
        (lambda: sv.Published(epsilon=float("nan")), "Published: epsilon must be > 0, got nan"),
        (lambda: sv.DPADMM(rho=0), "DPADMM: rho must be > 0, got 0"),
        (lambda: sv.DPADMM(rho=-1.0), "DPADMM: rho must be > 0, got -1.0"),
        (lambda: sv.DPADMM(theorem=5), "unknown theorem 5. Known: auto, 3, 4"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_one_clear_sentence(make, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def train(**changes):
    options = {"rounds": 2, "privacy": sv.NoPrivacy(), "seed": 0, "engine": "numpy"} | changes
    return sv.train(
        options.pop("algorithm", sv.DPADMM()), options.pop("fed", small()), options.pop("goal", goal()), **options
    )


def one_class() -> sv.Federation:
    return sv.Federation.from_arrays(X, np.ones(6), G)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "train: rounds must be a whole number >= 1, got 0"),
        ({"fed": one_class()}, "one class"),
        ({"fed": sv.Federation.from_arrays(X, Y + 3, G)}, "labels"),
        ({"test": (X[:, :1], Y)}, "X must have the federation's 4 columns, got 1"),
        (
            {"goal": sv.Objective(sv.Squared()), "privacy": sv.Published(0.5, 1e-3)},
            "gradients of Squared are unbounded",
        ),
    ],
)
def test_training_refuses(changes: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        train(**changes)


def test_what_has_no_proof_is_refused() -> None:
    from sottovoce.algorithms import ADMM, DVP

    proven = sv.Proven(epsilon=1, delta=1e-5, clip=1)
    for algorithm, objective, message in [
        (DVP(), goal(), "dvp: has no 'proven' variant"),
        (ADMM(), goal("squared"), "arg-min of Squared has no bounded sensitivity"),
    ]:
        with pytest.raises(NoGuarantee, match=message):
            train(
                algorithm=algorithm,
                goal=objective,
                privacy=proven,
                fed=small("squared" if objective.loss.name == "squared" else "logistic"),
            )


def test_indicator_penalty_needs_the_server() -> None:
    from sottovoce.problems.penalties import Box

    boxed = sv.Objective(sv.Logistic(), Box(-0.1, 0.1))
    with pytest.raises(InvalidInput, match="use penalty_at='server'"):
        train(goal=boxed)
    result = train(goal=boxed, algorithm=sv.DPADMM(penalty_at="server"), rounds=50)
    assert np.abs(result.model).max() <= 0.1 + 1e-12


def test_theorem_4_needs_a_public_row_bound() -> None:
    federation = small()
    promise_free = sv.Federation(federation.X, federation.y, federation.offsets, federation.names)
    proven = sv.Proven(epsilon=1, delta=1e-5, clip=1)
    with pytest.raises(InvalidInput, match="row_bound"):
        train(algorithm=sv.DPADMM(theorem=4), fed=promise_free, privacy=proven)
    assert np.isfinite(train(fed=promise_free, privacy=proven).model).all()  # "auto" falls back on Theorem 3


def test_no_error_quotes_an_entry() -> None:
    """Messages travel further than rows do."""
    rows = [[0.1, 0.2], [0.3, "Anna Rossi"]]
    cases = (
        (rows, [1, -1], ["a", "b"], r"X must be numbers, and there is str at \(1, 1\)\. Drop such rows"),
        ([[0.1], [b"Anna Rossi"]], [1, -1], ["a", "b"], r"X must be numbers, and there is bytes at \(1, 0\)"),
        ([[0.1], [0.2, 0.3]], [1, -1], ["a", "b"], "X must be numbers in rows of equal length"),
        ([[0.1], [0.2]], ["1", "Anna Rossi"], ["b", "a"], r"y must be numbers, and there is str at \(1,\)"),
        ([[0.1], [0.2]], [1, -1], np.array(["Anna Rossi", 1], dtype=object), "groups must be all text or all numbers"),
    )
    for X, y, groups, words in cases:
        with pytest.raises(InvalidInput, match=words) as error:
            sv.Federation.from_arrays(X, y, groups)
        assert "Rossi" not in str(error.value)
    for loss in (sv.Logistic(), sv.Softmax(3)):
        federation = sv.Federation.from_arrays([[0.1], [0.2]], [1, 233.4], ["a", "b"])
        with pytest.raises(InvalidInput, match="and 1 of 2 are") as error:
            sv.train(sv.DPADMM(), federation, sv.Objective(loss), rounds=1, privacy=sv.NoPrivacy())
        assert "233" not in str(error.value)


# ----------------------------------------------------------------------------- the same questions for rows and columns


def by_rows() -> sv.Federation:
    return sv.Federation.from_arrays(X, Y, np.array(["b", "a", "b", "c", "a", "b"]), row_bound=16.0)


def by_columns(sparse: bool = False) -> sv.VerticalFederation:
    parts = [X[:, :1], csr_array(X[:, 1:]) if sparse else X[:, 1:]]
    return sv.VerticalFederation.from_arrays(parts, Y, names=["bank", "shop"], holder=1)


def test_rows_and_columns_answer_the_same_questions() -> None:
    rows, columns = by_rows(), by_columns()
    assert (rows.layout, columns.layout) == ("rows", "columns")
    assert (rows.n, columns.n) == (3, 2)
    assert (rows.sizes.tolist(), columns.sizes.tolist()) == ([2, 3, 1], [6, 6])
    assert (rows.widths, columns.widths) == ((2, 2, 2), (1, 1))
    assert (rows.row_bound, columns.row_bound) == (16.0, None)
    assert (rows.message_size(Softmax(3)), columns.message_size(Softmax(3))) == (6, 6)
    assert (rows.message_size(sv.Logistic()), columns.message_size(sv.Logistic())) == (2, 6)
    assert rows.as_rows("audit", "needs rows") is rows
    with pytest.raises(InvalidInput, match=r"^audit: needs rows$"):
        columns.as_rows("audit", "needs rows")


def test_tables_hold_sizes_and_bounds() -> None:
    rows, columns = by_rows(), by_columns()
    sizes = {"clients": 3, "rows": 6, "columns": 2, "smallest_client": 1, "largest_client": 3}
    assert rows.to_table() == {"source": "arrays", **sizes, "row_bound": 16.0}
    assert rows.in_float32().to_table() == {"source": "arrays", **sizes, "stored": "float32", "row_bound": 16.0}
    assert columns.to_table() == {"source": "arrays", "rows": 6, "split": [1, 1], "holder": 1}
    assert rows.clients_table() == {"names": ["a", "b", "c"], "columns": 2, "row_bound": 16.0}
    assert columns.clients_table() == {"names": ["bank", "shop"], "split": [1, 1], "samples": 6, "holder": "shop"}
    assert (rows.model_parts(), columns.model_parts()) == ({}, {"widths": (1, 1)})
    assert (rows.node_table(), columns.node_table()) == ({"row_bound": 16.0}, {"same_order": True})


@pytest.mark.parametrize("sparse", [False, True])
def test_data_of_each_owner(sparse: bool) -> None:
    rows, columns = by_rows(), by_columns(sparse)
    for federation in (rows, rows.in_float32(), columns):
        for (X_i, y_i), size in zip(federation.dense_data(), federation.sizes, strict=True):
            assert isinstance(X_i, np.ndarray)
            assert (X_i.dtype, X_i.ndim, len(X_i)) == (np.float64, 2, size)
            assert len(y_i) in (0, size)
    assert [len(y) for _, y in columns.data()] == [0, 6]
    np.testing.assert_array_equal(np.hstack([part for part, _ in columns.dense_data()]), X)
    changed = sv.VerticalFederation.from_arrays([X[:, :1], X[:, 1:] + np.eye(6)[:, :1]], Y, holder=1)
    assert fingerprint(*columns.fingerprint_arrays()) != fingerprint(*changed.fingerprint_arrays())
    assert fingerprint(*rows.fingerprint_arrays()) == fingerprint(rows.X, rows.y, rows.offsets)


def test_one_name_per_client() -> None:
    with pytest.raises(InvalidInput, match=r"^Federation: needs one name per client \(2\), got 1$"):
        sv.Federation(X, Y, np.array([0, 2, 6]), ("one",))
