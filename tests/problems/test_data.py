import csv
import gzip
import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.problems import data as datasets
from sottovoce.problems.data import sources, uci_adult

preprocessing: Any = import_module("sklearn.preprocessing")  # pyright would read all of it for its types
CATEGORICAL = [1, 3, 5, 6, 7, 8, 9, 13]
NUMERIC = [0, 2, 4, 10, 11, 12]
MADELON_FILES = [f"extra/madelon_{part}" for part in ("train.data", "train.labels", "valid.data", "valid.labels")]
GOOD_ROW = " ".join(["1"] * 500) + "\n"
GOOD_MADELON = dict(zip(MADELON_FILES, [GOOD_ROW, "1\n"] * 2, strict=True))
HEART_FILES = [f"heart/processed.{h}.data" for h in ("cleveland", "hungarian", "switzerland", "va")]

SHA256 = {file: digest for source in datasets.SOURCES for file, digest in source.sha256.items()}


def _shared_folder() -> Path:
    """The folder the user named, else the one kept next to the checkout."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("SOTTOVOCE_DATA") or beside)


SHARED = _shared_folder()
needs_files = pytest.mark.skipif(
    not (SHARED / "a9a.gz").is_file(), reason="a9a, madelon and arcene do not travel with the package"
)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOTTOVOCE_DATA", str(SHARED))
    return SHARED


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder and no network."""
    monkeypatch.delenv("SOTTOVOCE_DATA", raising=False)
    _answer(monkeypatch, URLError("no route"))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path))
    return tmp_path


def _answer(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    def fetch(name: str, **options: object) -> object:
        assert options["version"] == 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)


def _write(folder: Path, files: dict[str, str]) -> None:
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _raw_adult(file: str) -> list[list[str]]:
    content = gzip.decompress(resources.files("sottovoce.problems").joinpath("data", f"{file}.gz").read_bytes())
    return [row for row in csv.reader(io.StringIO(content.decode()), skipinitialspace=True) if len(row) == 15]


@pytest.fixture(scope="module")
def raw() -> dict[str, np.ndarray]:
    return {file: np.array(_raw_adult(file), dtype=object) for file in ("adult.data", "adult.test")}


@pytest.fixture(scope="module")
def one_hot() -> datasets.Dataset:
    return datasets.adult("one-hot")


@pytest.fixture(scope="module")
def ranks() -> datasets.Dataset:
    return datasets.adult("ranks")


def _complete(raw: dict[str, np.ndarray], *files: str) -> np.ndarray:
    table = np.vstack([raw[file] for file in files])
    return table[~(table == "?").any(axis=1)]


def _rich(table: np.ndarray) -> np.ndarray:
    return np.array([label in (">50K", ">50K.") for label in table[:, -1]])


def test_raw_adult_has_the_published_counts(raw: dict[str, np.ndarray]):
    for file, published in (("adult.data", [32561, 7841, 30162, 7508]), ("adult.test", [16281, 3846, 15060, 3700])):
        table, whole = raw[file], _complete(raw, file)
        assert [len(table), _rich(table).sum(), len(whole), _rich(whole).sum()] == published


def test_one_hot_agrees_with_scikit_learn(raw: dict[str, np.ndarray], one_hot: datasets.Dataset):
    table = _complete(raw, "adult.data", "adult.test")
    encoder = preprocessing.OneHotEncoder(sparse_output=False).fit(table[:, CATEGORICAL])
    numbers = preprocessing.maxabs_scale(table[:, NUMERIC].astype(float))
    scaled = np.hstack([numbers, encoder.transform(table[:, CATEGORICAL])])
    levels = encoder.get_feature_names_out([uci_adult.COLUMNS[c] for c in CATEGORICAL])
    names = [uci_adult.COLUMNS[c] for c in NUMERIC] + [str(level) for level in levels]
    order = [names.index(name.replace("=", "_")) for name in one_hot.feature_names]

    assert one_hot.X.shape == (45222, 104)
    assert len(levels) == 98
    assert sorted(order) == list(range(104))
    assert one_hot.X.flags.c_contiguous
    assert one_hot.X.dtype == np.float64
    np.testing.assert_allclose(one_hot.X, np.asarray(preprocessing.normalize(scaled))[:, order], rtol=1e-13)
    np.testing.assert_array_equal(one_hot.y, np.where(_rich(table), 1.0, -1.0))
    assert (one_hot.y > 0).sum() == 11208


def test_one_hot_bounds(one_hot: datasets.Dataset):
    norms = np.linalg.norm(one_hot.X, axis=1)
    assert one_hot.row_bound == 1.0
    assert norms.max() <= 1.0  # without tolerance: the bound is a promise
    assert norms.min() > 1 - 1e-12
    sexes = [one_hot.feature_names.index(f"sex={sex}") for sex in ("Female", "Male")]
    before_rows_were_scaled = one_hot.X / one_hot.X[:, sexes].max(axis=1, keepdims=True)  # one of the two was 1
    np.testing.assert_allclose(before_rows_were_scaled.max(axis=0), 1.0, rtol=1e-13)


def test_ranks_agree_with_scikit_learn(raw: dict[str, np.ndarray], ranks: datasets.Dataset):
    table = _complete(raw, "adult.test", "adult.data")
    expected = np.empty((45222, 14))
    expected[:, NUMERIC] = table[:, NUMERIC].astype(float)
    expected[:, CATEGORICAL] = preprocessing.OrdinalEncoder().fit_transform(table[:, CATEGORICAL])
    np.testing.assert_allclose(ranks.X, np.asarray(preprocessing.normalize(expected, axis=0)), rtol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(ranks.X, axis=0), 1.0, rtol=1e-11)
    np.testing.assert_array_equal(ranks.y, np.where(_rich(table), 1.0, -1.0))
    assert ranks.feature_names == uci_adult.COLUMNS
    assert ranks.row_bound is None
    assert ranks.X.flags.c_contiguous


def test_ranks_count_the_smaller_levels_in_ascii_order(raw: dict[str, np.ndarray], ranks: datasets.Dataset):
    table = _complete(raw, "adult.test", "adult.data")
    for column in CATEGORICAL:
        encoded = [level.encode("ascii") for level in set(table[:, column])]
        unit = np.unique(ranks.X[:, column])[1]  # rank 1 over the column's length
        for row in range(0, 45222, 4999):
            smaller = sum(level < table[row, column].encode("ascii") for level in encoded)
            assert ranks.X[row, column] / unit == pytest.approx(smaller, rel=1e-12)
    # Never-worked, between the last two, went with its missing occupation
    assert sorted(set(table[:, 1]))[:3] == ["Federal-gov", "Local-gov", "Private"]


def test_classes_keep_all_rows_with_their_gaps_filled(raw: dict[str, np.ndarray]):
    classes = datasets.adult("classes")
    assert classes.X.shape == (48842, 81)
    assert np.issubdtype(classes.y.dtype, np.integer)
    assert [int(part.sum()) for part in (classes.y[:32561], classes.y[32561:])] == [7841, 3846]  # those of a9a
    np.testing.assert_allclose(classes.X[:32561].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(classes.X[:32561].std(axis=0), 1)
    private = classes.X[:, classes.feature_names.index("workclass=Private")] > 0
    table = np.concatenate([raw["adult.data"], raw["adult.test"]])
    np.testing.assert_array_equal(private, np.isin(table[:, 1], ["Private", "?"]))  # the most frequent one
    assert not any("?" in name or "Federal-gov" in name for name in classes.feature_names)
    assert "81" in classes.notes


@pytest.mark.parametrize("file", SHA256)
def test_bundled_files_have_the_published_digest(file: str):
    content = resources.files("sottovoce.problems").joinpath("data", f"{file}.gz").read_bytes()
    assert hashlib.sha256(gzip.decompress(content)).hexdigest() == SHA256[file]
    assert SHA256[file] in (resources.files("sottovoce.problems").joinpath("data", "ATTRIBUTION.md").read_text())


def test_adult_is_read_without_pandas():
    """Arrow imports it where it is installed, unless one takes care: longer than all the rest takes."""
    code = "import sys; from sottovoce.problems import data; data.adult(); assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_changed_bundled_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    shutil.copytree(str(resources.files("sottovoce.problems") / "data"), tmp_path / "data")
    monkeypatch.setattr(sources.resources, "files", lambda _: tmp_path)
    assert len(uci_adult.complete_rows("adult.test")) == 15060
    path = tmp_path / "data" / "adult.test.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[30] ^= 1
    path.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(InvalidInput, match=r"adult\.test: SHA-256 must be a2a9.*install sottovoce again"):
        datasets.adult()
    path.unlink()
    with pytest.raises(MissingData, match="install sottovoce again"):
        datasets.adult()


@needs_files
def test_a9a(shared: Path, raw: dict[str, np.ndarray]):
    a9a, thin = datasets.a9a(encoding="binary"), datasets.a9a(encoding="binary", dense=False)
    assert a9a.test is not None
    assert thin.test is not None
    for X, y, sparse_X, file, adult, nonzeros in (
        (a9a.X, a9a.y, thin.X, "a9a.gz", "adult.data", 451592),
        (*a9a.test, thin.test[0], "a9a.t.gz", "adult.test", 225731),
    ):
        expected = sklearn.datasets.load_svmlight_file(str(shared / file), n_features=123)
        np.testing.assert_array_equal(X, expected[0].toarray())
        np.testing.assert_array_equal(y, expected[1])
        np.testing.assert_array_equal(y > 0, _rich(raw[adult]))
        assert sparse.issparse(sparse_X)
        assert sparse_X.format == "csr"
        assert sparse_X.nnz == nonzeros
        np.testing.assert_array_equal(sparse_X.toarray(), X)
        assert a9a.row_bound is not None
        assert np.linalg.norm(X, axis=1).max() <= a9a.row_bound
    assert len(a9a.feature_names) == 123


@pytest.mark.usefixtures("nowhere")
def test_heart():
    heart = datasets.heart("raw")
    rows, labels, hospitals = [], [], []
    for file in HEART_FILES:
        content = resources.files("sottovoce.problems").joinpath("data", f"{file}.gz").read_bytes()
        for fields in csv.reader(io.StringIO(gzip.decompress(content).decode())):
            if "?" not in fields[:10]:
                rows.append([float(f) for f in fields[:10]])
                labels.append(1 if int(fields[13]) > 0 else -1)
                hospitals.append(Path(file).name.split(".")[1])
    np.testing.assert_array_equal(heart.X, rows)
    np.testing.assert_array_equal(heart.y, labels)
    assert heart.groups is not None
    assert heart.groups.tolist() == hospitals
    sizes = {str(name): int(size) for name, size in zip(*np.unique(heart.groups, return_counts=True), strict=True)}
    assert sizes == {"cleveland": 303, "hungarian": 261, "switzerland": 46, "va": 130}
    assert (heart.X.shape, (heart.y > 0).sum()) == ((740, 10), 383)  # as FLamby's Fed-Heart-Disease
    assert heart.feature_names[-1] == "oldpeak"
    assert (heart.X[heart.groups == "switzerland", heart.feature_names.index("chol")] == 0).all()


@needs_files
@pytest.mark.parametrize(
    ("name", "shapes", "positives", "totals"),
    [
        ("madelon", [(2000, 500), (600, 500)], [1000, 300], [488083511, 146395833]),
        ("arcene", [(100, 10000), (100, 10000)], [44, 44], [70726744, 71410108]),
    ],
)
def test_feature_selection_challenge(shared: Path, name: str, shapes: list, positives: list, totals: list):
    data = datasets.load(name)
    assert data.test is not None
    parts = [(data.X, data.y), data.test]
    assert [X.shape for X, _ in parts] == shapes
    assert [int((y == 1).sum()) for _, y in parts] == positives
    assert [int(X.sum()) for X, _ in parts] == totals
    assert {float(v) for _, y in parts for v in y} == {-1.0, 1.0}
    for (X, y), part in zip(parts, ("train", "valid"), strict=True):
        np.testing.assert_array_equal(X[7], np.loadtxt(shared / f"extra/{name}_{part}.data.gz", skiprows=7, max_rows=1))
        np.testing.assert_array_equal(y, np.loadtxt(shared / f"extra/{name}_{part}.labels.gz"))


@needs_files
def test_plain_files_do_as_well(folder: Path):
    for file in MADELON_FILES:
        _write(folder, {file: gzip.decompress((SHARED / f"{file}.gz").read_bytes()).decode()})
    assert datasets.madelon().X.shape == (2000, 500)
    with (folder / MADELON_FILES[0]).open("a") as file:
        file.write(GOOD_ROW)
    with pytest.raises(InvalidInput, match="training part must have 2000 rows, got 2001"):
        datasets.madelon()


@needs_files
def test_openml_gives_the_same_numbers_or_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch):
    plain: dict[str, dict[str, str]] = {"a9a": {"encoding": "binary"}, "arcene": {}}
    by_file = {name: datasets.load(name, **options) for name, options in plain.items()}
    monkeypatch.delenv("SOTTOVOCE_DATA")
    for name, data in by_file.items():
        assert data.test is not None
        X, y = np.vstack([data.X, data.test[0]]), np.concatenate([data.y, data.test[1]])
        named = np.where(y > 0, "2", "1").astype(object) if name == "arcene" else y
        _answer(monkeypatch, (sparse.csr_matrix(X) if name == "a9a" else X, named))
        fetched = datasets.load(name, **plain[name])
        np.testing.assert_array_equal(fetched.X, data.X)
        np.testing.assert_array_equal(fetched.y, data.y)
        assert fetched.test is not None
        np.testing.assert_array_equal(fetched.test[0], data.test[0])
        np.testing.assert_array_equal(fetched.test[1], data.test[1])
        assert fetched.X.flags.c_contiguous
        for other_X, other_y, complaint in (
            (X, -y, "positive labels"),
            (X[:-1], y[:-1], "test part must have"),
            (X[:, 1:], y, "features"),
            (X[::-1], y, "sum of all entries"),
        ):
            _answer(monkeypatch, (other_X, other_y))
            with pytest.raises(MissingData, match=complaint):
                datasets.load(name)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("name", "file", "origin"),
    [
        ("a9a", "a9a.t", "LIBSVM Data"),
        ("madelon", "extra/madelon_valid.labels", "doi:10.24432/C5602H"),
        ("arcene", "extra/arcene_train.data", "doi:10.24432/C58P55"),
    ],
)
def test_missing_data_says_what_to_do(name: str, file: str, origin: str, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MissingData) as caught:
        datasets.load(name)
    message = str(caught.value)
    for part in (f"{name}: not found", "SOTTOVOCE_DATA is not set", file, origin):
        assert part in message
    assert "URLError" in message
    assert str(Path.home()) not in message
    assert socket.getdefaulttimeout() is None
    monkeypatch.setenv("SOTTOVOCE_DATA", "my-folder")
    with pytest.raises(MissingData, match=r"not all files are in my-folder, the folder of SOTTOVOCE_DATA"):
        datasets.load(name)


def test_without_download_openml_is_not_asked(nowhere: None, monkeypatch: pytest.MonkeyPatch):
    _answer(monkeypatch, AssertionError("asked"))
    for load in (datasets.a9a, datasets.madelon, datasets.arcene):
        with pytest.raises(MissingData) as caught:
            load(download=False)
        assert "OpenML" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["-1 124:1", "-1 0:1", "-1 5:1 4:1", "-1 4:1 4:1", "-1 4:2", "-1 4", "-1 4:1:1", "-1 a:1"]
)
def test_malformed_a9a_lines(folder: Path, line: str):
    _write(folder, {"a9a": f"+1 1:1 123:1\n{line}\n", "a9a.t": ""})
    with pytest.raises(InvalidInput, match=r"a9a, line 2: must be a label and pairs index:1, .* within 1\.\.123$"):
        datasets.a9a()


def test_a_folder_with_one_file_too_few_is_not_enough(folder: Path):
    _write(folder, dict.fromkeys(MADELON_FILES[:3], ""))
    assert {info.name: info.status for info in datasets.available()}["madelon"] == "missing"
    with pytest.raises(MissingData, match=r"not all files are in .*madelon_valid\.labels"):
        datasets.madelon(download=False)


def test_malformed_labels_and_tables(folder: Path):
    _write(folder, {"a9a": "0 1:1\n", "a9a.t": ""})
    with pytest.raises(InvalidInput, match=r"a9a, line 1: label must be -1 or \+1$"):
        datasets.a9a()
    for file, text, complaint in (
        (
            "extra/madelon_valid.data",
            GOOD_ROW + "1 2 3\n",
            r"valid\.data, line 2: must have 500 fields separated by spaces, got 3",
        ),
        ("extra/madelon_train.data", GOOD_ROW.replace("1", "inf", 1), r"train\.data, line 1: must hold finite numbers"),
        (
            "extra/madelon_train.data",
            GOOD_ROW.replace("1", "one", 1),
            r"train\.data, line 1: must hold finite numbers, and field 1 is none$",
        ),
        ("extra/madelon_train.labels", "1\n2\n", r"train\.labels, line 2: label must be"),
        ("extra/madelon_train.labels", "1\n", "training part must have 2000 rows, got 1"),
    ):
        _write(folder, GOOD_MADELON | {file: text})
        with pytest.raises(InvalidInput, match=complaint):
            datasets.madelon()


def test_unreadable_files_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    _write(folder, GOOD_MADELON)
    (folder / MADELON_FILES[0]).write_bytes(b"63 \xff")
    with pytest.raises(InvalidInput, match=r"train\.data: must be plain ASCII text, and byte 3 is not"):
        datasets.madelon()
    packed = folder / f"{MADELON_FILES[0]}.gz"
    for broken in (b"not gzip", gzip.compress(GOOD_ROW.encode())[:-9]):
        packed.write_bytes(broken)
        with pytest.raises(InvalidInput, match=r"train\.data: must be a whole gzip file"):
            datasets.madelon()
    monkeypatch.setattr(sources, "_LARGEST_FILE", 2**20)
    packed.write_bytes(gzip.compress(b"\n" * (2**20 + 1)))  # small on disk, too large once unpacked
    with pytest.raises(InvalidInput, match=r"train\.data: must have at most 1 MiB"):
        datasets.madelon()
    packed.write_bytes(gzip.compress(b"\n" * 2**20))
    with pytest.raises(InvalidInput, match="must have 2000 rows, got 0"):
        datasets.madelon()


def test_load_finds_the_nearest_name():
    assert datasets.load("adult", encoding="ranks").X.shape == (45222, 14)
    with pytest.raises(InvalidInput, match=r"unknown data set 'adlt'\. Did you mean 'adult'"):
        datasets.load("adlt")
    with pytest.raises(InvalidInput, match=r"adult: unknown option 'encodings'\. Did you mean 'encoding'"):
        datasets.load("adult", encodings="ranks")
    with pytest.raises(InvalidInput, match=r"adult: unknown encoding 'onehot'\. Did you mean 'one-hot'"):
        datasets.adult("onehot")
    with pytest.raises(InvalidInput, match="heart: unknown option 'dense'"):
        datasets.load("heart", dense=True)


def test_available_reads_nothing(folder: Path):
    _write(folder, dict.fromkeys(MADELON_FILES, "not even read"))
    infos = {info.name: info for info in datasets.available()}
    assert list(infos) == ["adult", "a9a", "heart", "madelon", "arcene"] == list(datasets.LOADERS)
    assert [info.status for info in infos.values()] == ["bundled", "missing", "bundled", "found", "missing"]
    assert infos["madelon"].where == str(folder)
    assert (infos["heart"].rows, infos["heart"].features) == (740, 10)
    assert (infos["a9a"].rows, infos["a9a"].test_rows, infos["a9a"].features) == (32561, 16281, 123)
    assert "OpenML" in infos["a9a"].how_to_get
    assert "OpenML" not in infos["heart"].how_to_get
    code = (
        "import sys; from sottovoce.problems import data; data.available(); "
        "print([m for m in ('pandas', 'scipy', 'sklearn', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@given(rows=st.integers(2, 60), share=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_split_sets_rows_aside(rows: int, share: float, seed: int):
    test = min(max(round(share * rows), 1), rows - 1)
    train_rows, test_rows = datasets.split_rows(rows, test, seed)
    assert len(test_rows) == test
    assert sorted([*train_rows, *test_rows]) == list(range(rows))
    X, y = np.arange(rows * 2.0).reshape(rows, 2), np.arange(rows)
    stored: list[Any] = [X, sparse.csr_array(X)]
    for matrix in stored:
        X_train, y_train, X_test, y_test = datasets.split(matrix, y, test, seed)
        np.testing.assert_array_equal(y_train, train_rows)
        np.testing.assert_array_equal(y_test, test_rows)
        assert X_train.sum() + X_test.sum() == X.sum()
        assert X_test.sum() == X[test_rows].sum()


def test_split_by_fraction_and_seed():
    train, test = datasets.split_rows(45222, 5222, seed=1)
    assert (len(train), len(test)) == (40000, 5222)
    assert len(datasets.split_rows(1000, 0.25, seed=1)[1]) == 250
    np.testing.assert_array_equal(datasets.split_rows(45222, 5222, seed=1)[1], test)
    assert not np.array_equal(datasets.split_rows(45222, 5222, seed=2)[1], test)


@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        (0, "test must be a whole number >= 1, got 0"),
        (10, "at least one of 10 rows on either side, got 10"),
        (0.001, "at least one of 10 rows on either side, got 0.001"),
        (1.0, r"test must lie in \(0, 1\), got 1.0"),
        (float("nan"), r"test must lie in \(0, 1\), got nan"),
        (True, "whole number"),
    ],
)
def test_split_refuses(test: float, complaint: str):
    with pytest.raises(InvalidInput, match=complaint):
        datasets.split_rows(10, test, seed=0)


def test_split_wants_one_label_per_row():
    with pytest.raises(InvalidInput, match=r"one value per row of X \(3\), got 2"):
        datasets.split(np.zeros((3, 1)), np.zeros(2), 1, seed=0)
