"""Tables, configurations and calls of `equality.py`."""

import warnings
from copy import deepcopy
from functools import partial
from inspect import signature
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import torch
from energies import Bell, Blob, Factor
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from torch.distributions import Independent, Normal

import skvnce
from skvnce.options import (
    LAIR,
    LBFGS,
    MCEM,
    MWG,
    VGI,
    Adam,
    Chunks,
    IncompleteDensity,
    TorchVAE,
)

BAD, N = "bad", 40  # the name of bad inputs, and their number of rows


def is_ours(value):
    """Tell whether an object is of this package."""
    return type(value).__module__.startswith("skvnce.")


def is_full(name):
    """Tell whether all calls are made, for one configuration of each estimator."""
    return name.split("/")[1] in ("default", "logistic", "ridge", "equations")


def numbers(n=80, d=5, seed=0, missing=0.2):
    """Draw correlated numbers with missing cells."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + rng.normal(size=(n, d)) + np.arange(d)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def table(X, *, parts=(), copies=False, number=0, level=None, **fit):
    """Add what methods are called with: new rows, and names of two columns."""
    n = X.shape[0] if hasattr(X, "shape") and isinstance(X.shape[0], int) else 0
    rng = np.random.default_rng(1)
    y = {"classes": np.arange(n) % 3, "target": rng.normal(size=n)}
    new = X
    if isinstance(X, pd.DataFrame):
        new = X.iloc[10:40].reindex([*X.index[10:40], "new"])
    elif isinstance(X, np.ndarray):
        new = np.vstack([X[10:40], np.full((1, X.shape[1]), np.nan, X.dtype)])
    elif n:
        new = X[10:40]
    return SimpleNamespace(
        X=X, new=new, y=y, parts=parts, copies=copies, number=number, level=level,
        fit=fit,
    )  # fmt: skip


def mixed(n=80):
    """Make a frame of columns of all kinds."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "number": z + rng.normal(size=n),
            "answer": pd.Categorical(np.where(z > rng.normal(size=n), "yes", "no")),
            "text": pd.Series(rng.choice(list("pqr"), n), dtype="string"),
            "size": pd.Categorical.from_codes(
                np.digitize(z, [-0.5, 0.5]), ["s", "m", "l"], ordered=True
            ),
            "skewed": np.exp(z + rng.normal(size=n)),
        }
    ).mask(rng.random((n, 5)) < 0.2)
    frame["flag"], frame["count"] = z > 0, rng.poisson(9, n)
    frame["few"] = pd.array(rng.integers(0, 4, n), dtype="Int64")
    frame.loc[rng.random(n) < 0.2, "few"] = pd.NA
    return frame


def with_names():
    """Add identifiers, dates, and an empty and a constant column."""
    X, n = mixed(), 80
    rng = np.random.default_rng(3)
    X.insert(0, "id", [f"row {k}" for k in range(n)])
    X["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 999, n), "D"
    )
    X["note"] = [f"this is a long text of number {k % 70}" for k in range(n)]
    X["never"], X["always"] = np.nan, "same"
    X.loc[::7, ["id", "always"]] = None
    X.index = [f"i{k}" for k in range(n)]
    return X.drop(columns=["text", "count"])


def holes():
    X = pd.DataFrame(numbers(), columns=list("abcde"))
    X.insert(2, "empty", np.nan)
    X["constant"] = 3.0
    X.iloc[[3, 8]] = np.nan
    return X


def counts():
    rng, n = np.random.default_rng(4), 90
    rate = rng.gamma(2.0, size=n)
    X = pd.DataFrame(
        {
            "whole": rng.poisson(5 * rate).astype(float),
            "large": np.round(1000 * rate * rng.gamma(9.0, size=n)),
            "int": rng.poisson(20 * rate),
            "nullable": pd.array(rng.poisson(30 * rate), dtype="Int64"),
            "half": np.round(2 * rate * rng.gamma(3.0, size=n)) / 2,
            "money": np.round(rate * rng.gamma(9.0, size=n), 2).astype("float32"),
        }
    )
    for name in ["whole", "large", "nullable", "half", "money"]:
        X.loc[rng.random(n) < 0.2, name] = None
    return X


def heavy():
    X = np.random.default_rng(5).standard_t(2, size=(80, 5))
    X[:, 1] += X[:, 0]
    return np.where(np.isnan(numbers()), np.nan, X)


def collinear():
    X = numbers()
    X[:, 4] = 2 * X[:, 0] - 1
    X[:, 3] = 1e6 + 1e-3 * X[:, 3]
    X[0, 2] = 60.0
    return X[:, :5]


def sums():
    parts = pd.DataFrame(
        np.random.default_rng(6).gamma(4.0, size=(80, 3)), columns=[*"abc"]
    )
    parts["total"], parts["ratio"] = parts.sum(axis=1), ratio(parts["a"], parts["b"])
    return parts.mask(np.isnan(numbers()))


def ratio(a, b):
    return a / b


def binary(n=80, d=8):
    rng = np.random.default_rng(7)
    causes = rng.random((n, 2)) < 0.4
    X = ((causes @ (rng.random((2, d)) < 0.5)) | (rng.random((n, d)) < 0.1)).astype(
        float
    )
    return X, np.where(rng.random(X.shape) < 0.1, np.nan, X)


def limited():
    """Give tables of limits of missing cells, and others of new tables."""
    X = numbers()
    rng = np.random.default_rng(8)
    low = np.where(rng.random(X.shape) < 0.5, rng.normal(size=X.shape) - 1, np.nan)
    high = np.where(rng.random(X.shape) < 0.5, low + 2, np.nan)
    return table(X, copies=True, lower=low, upper=high)


def limited_frame():
    X = holes()
    low = {"a": np.linspace(-1, 0, 80), "b": -2.0}
    return table(X, number="a", lower=low)


def thirds(X):
    part = X.iloc if hasattr(X, "iloc") else X
    return [part[:30], part[30:60], part[60:]]


FRAME, POSITIVE = partial(mixed), partial(lambda: np.exp(numbers() / 3))
MIXED = {"number": "number", "level": ("answer", "yes")}
TABLES = {
    "normal": lambda: table(numbers(), parts=thirds(numbers())),
    "float32": lambda: table(np.asfortranarray(numbers().astype(np.float32))),
    "positive": lambda: table(POSITIVE(), copies=True),
    "holes-positive": lambda: table(holes().abs(), number="a"),
    "heavy-positive": lambda: table(abs(heavy())),
    "holes": lambda: table(holes(), number="a", copies=True),
    "counts": lambda: table(counts(), number="whole"),
    "heavy": lambda: table(heavy()),
    "collinear": lambda: table(collinear()),
    "repeated": lambda: table(np.round(numbers(), 1)),
    "wide": lambda: table(numbers(9, 14)),
    "complete": lambda: table(numbers(missing=0)),
    "constant": lambda: table(np.where(np.isnan(numbers()), np.nan, 2.0)),
    "labels": lambda: table(
        pd.DataFrame(np.round(numbers(), 1), columns=[5, 3, 1, 0, 2])
    ),
    "weights": lambda: table(
        numbers(), sample_weight=np.arange(80) % 4, copies=True
    ),
    "limits": limited,
    "limits-frame": limited_frame,
    "mixed": lambda: table(mixed(), copies=True, parts=thirds(mixed()), **MIXED),
    "names": lambda: table(with_names(), **MIXED),
    "levels": lambda: table(mixed().drop(columns="text"), **MIXED),
    "polars": lambda: table(pl.from_pandas(mixed()), **MIXED),
    "sums": lambda: table(sums(), number="a", copies=True),
    "binary": lambda: table(binary()[1], parts=thirds(binary()[1])),
    "sparse": lambda: table(csr_array(binary()[0])),
    "chunks": lambda: table(Chunks(thirds(numbers()))),
    "chunks-mixed": lambda: table(Chunks(thirds(mixed())), **MIXED),
    "dask": lambda: table(dd.from_pandas(mixed(), npartitions=2), **MIXED),
    "dask-array": lambda: table(da.from_array(numbers(), chunks=(40, 5))),
}  # fmt: skip
NUMBERS = "normal float32 positive holes counts heavy collinear repeated wide complete"
NUMBERS += " constant labels"
OTHERS = "normal float32 holes counts heavy repeated wide constant labels"
CATEGORIES = "mixed names polars"
PARTS = "chunks chunks-mixed dask dask-array"
FEW = "normal holes"

TINY = {"max_iter": 1, "hidden_layer_sizes": (4,), "n_importance_samples": 8}
DRAWN = {"n_steps": 2, "n_draws": 6}
DENSITY = {"n_training_draws": 1, "n_importance_samples": 8, "max_iter": 1}
ON_ALL = Adam(batch_size=16, validation_fraction=0)


class Decoder(torch.nn.Module):
    def prior(self):
        return Independent(Normal(torch.zeros(1), torch.ones(1)), 1)

    def likelihood(self, z):
        return Normal(z * torch.arange(1.0, 6.0), 0.5)


class Encoder(torch.nn.Module):
    def forward(self, x, observed):
        return Independent(Normal(x[..., :1], 0.3), 1)


CONFIGS = {}  # of names to estimators and tables


def add(short, name, tables, *arguments, output=None, **parameters):
    """Add a configuration."""
    one = getattr(skvnce, short)(*arguments, **parameters)
    if "random_state" in one.get_params() and "random_state" not in parameters:
        one.set_params(random_state=0)
    if output:
        one.set_output(transform=output)
    CONFIGS[f"{short}/{name}"] = one, tables.split()


def gaussian(**parameters):
    return skvnce.GaussianImputer(
        **{"n_parameter_draws": 2, "max_iter": 20} | parameters
    )


def vae(*arguments, **parameters):
    return skvnce.VariationalAutoencoder(*arguments, **TINY | parameters)


def density(*arguments, **parameters):
    return IncompleteDensity(*arguments, **DENSITY | parameters)


# fmt: off
GI = partial(add, "GaussianImputer")
GI("default", f"{NUMBERS} weights limits limits-frame {CATEGORIES} binary {PARTS}")
GI("errors", "bad", max_iter=6, n_parameter_draws=1)
GI("few draws", "float32 counts heavy wide names limits",
   n_parameter_draws=1, max_iter=12)
GI("no draws", FEW, n_parameter_draws=0, shrinkage=0.3)
GI("normal",
   "normal holes float32 positive heavy collinear weights limits chunks",
   marginals="normal", tol=0.1)
GI("keep", "holes names", keep_empty_features=True, add_indicator=True, output="pandas")
GI("polars out", "polars holes", add_indicator=True, output="polars")
GI("bounds", f"{FEW} limits", min_value=-6, max_value="observed")
GI("bounds by name", "holes",
   min_value={"a": -5.0, "b": "observed"}, max_value={"c": 9})
GI("bounds in counts", "counts", min_value={"whole": 0}, max_value={"int": 1e3})
GI("kinds", "mixed", categorical_features={"few": "nominal", "count": "ordinal"},
   handle_unknown="missing")
GI("indices", "binary", categorical_features=[1, 2])
GI("no categories", "counts", categorical_features=None, on_misfit="ignore")
GI("raises", "heavy collinear wide", on_misfit="raise")
GI("verbose", "holes mixed chunks", verbose=2)

CG = partial(add, "CopulaGraphLearner")
CG("default", f"{OTHERS} limits limits-frame {CATEGORIES} {PARTS}")
CG("errors", "bad", max_iter=2)
CG("short", "normal counts heavy wide repeated mixed",
   alpha=0.02, max_iter=6, keep_empty_features=True)
CG("kinds", "mixed", categorical_features={"few": "nominal"}, handle_unknown="missing")
CG("verbose", "holes", verbose=2, max_iter=5, output="pandas")
quick = skvnce.CopulaGraphLearner(max_iter=10, keep_empty_features=True)
CV = partial(add, "CopulaGraphLearnerCV")
CV("default", "normal holes mixed", alphas=4)
CV("errors", "bad", skvnce.CopulaGraphLearner(max_iter=2), alphas=2)
CV("cv", "holes", quick, alphas=[0.3, 0.1], selection="cv", cv=2)
CV("cv-1se", "normal", quick, alphas=3, selection="cv-1se", cv=3, verbose=2)
CV("stability", "mixed", quick, alphas=3, selection="stability", n_subsamples=3)
CV("gamma", "positive", quick, alphas=3, gamma=0.5)

TG = partial(add, "TruncatedGaussianGraphLearner")
TG("default", "positive counts binary heavy-positive holes-positive")
TG("errors", "bad", max_iter=5)
for name in ["vnce", "vnce-cdi", "vnce-lognormal", "pseudo-likelihood",
             "maximum-likelihood"]:
    TG(name, "positive holes-positive", algorithm=name, max_iter=2, n_steps=2)
TG("no linear", "positive counts", alpha=0.0, fit_linear=False)
TG("keep", "holes-positive", keep_empty_features=True, output="pandas", verbose=2)
TG("ridge", "positive", ridge=0.1, ridge_linear=0.2, tol=0.1, n_steps=5)
quick = skvnce.TruncatedGaussianGraphLearner(max_iter=10, keep_empty_features=True)
CV = partial(add, "TruncatedGaussianGraphLearnerCV")
CV("default", "positive holes-positive", alphas=4)
CV("errors", "bad", quick, alphas=2)
CV("cv", "positive", quick, alphas=[0.3, 0.1], selection="cv", cv=2)
CV("cv-1se", "positive", quick, alphas=3, selection="cv-1se", cv=3, verbose=2)
CV("stability", "holes-positive", quick, alphas=3, selection="stability",
   n_subsamples=3)

FA = partial(add, "IncompleteFactorAnalysis")
FA("default", f"{NUMBERS} weights binary chunks dask-array mixed bad")
FA("two", f"{NUMBERS} weights", n_components=2, max_iter=20)
FA("pandas", "holes", 1, output="pandas", verbose=2)

VAE = partial(add, "VariationalAutoencoder")
VAE("default", f"{NUMBERS} {CATEGORIES} binary", **TINY)
VAE("errors", "bad", 1, **TINY | {"max_iter": 0})
VAE("siwae", f"{FEW} mixed", 2, algorithm="miss-siwae", solver=ON_ALL,
    n_posterior_components=3, **TINY)
for name in ["mvae", "miss-svae", "demiss-vae", "cvi-vae", "mvb-vae", "vbgi-vae"]:
    VAE(name, "normal", 1, algorithm=name, **TINY)
VAE("student", FEW, 1, likelihood="student", dropout=0, marginals="normal", **TINY)
VAE("untrained", f"{FEW} counts", max_iter=0, n_importance_samples=8)
VAE("verbose", "holes names", 2, output="pandas", verbose=2, **TINY)

LI = partial(add, "LAIRImputer", **DRAWN)
LI("default", f"{OTHERS} {CATEGORIES} binary", vae(), n_estimators=2)
LI("errors", "bad", vae(1, max_iter=0), n_estimators=1)
LI("median", "mixed", vae(2, solver=ON_ALL), n_estimators=3, strategy="median",
   min_value="observed", max_value=60, add_indicator=True, keep_empty_features=True)
LI("mode", "counts", vae(1), n_estimators=1, strategy="mode", output="pandas")
for name in ["mwg", "ac-mwg", "pseudo-gibbs"]:
    LI(name, "normal mixed", vae(1), sampler=name, n_estimators=1)
LI("parts", "normal", vae(1), sampler=LAIR(2, 4, "prior"), n_estimators=1, verbose=2)
LI("warm", "normal", vae(1), sampler=MWG(3), n_estimators=1)
LI("student", "normal", vae(1, likelihood="student", solver=ON_ALL), n_estimators=2)
LI("own", "normal", TorchVAE(Decoder(), Encoder(), 8), sampler=LAIR(2, 4, "prior"))
LI("unknown", "mixed", vae(1), n_estimators=1, handle_unknown="missing",
   categorical_features={"few": "nominal"})

VI = partial(add, "VGIImputer", **DRAWN)
VI("default", f"{OTHERS} {CATEGORIES}", density(), n_estimators=1)
VI("errors", "bad", density(max_iter=0), n_estimators=1)
VI("two", "mixed", density(), n_estimators=2, add_indicator=True,
   keep_empty_features=True, min_value="observed", max_value=60)
for name in ["flow", "coupling-flow", "factor-analysis"]:
    VI(name, "holes", density(name, solver=Adam(8)), n_estimators=2, strategy="median")
VI("blob", "normal", density(Blob, solver=ON_ALL), strategy="mode", verbose=2)
VI("mcem", "normal", density("coupling-flow", algorithm=MCEM(4, 1)), n_estimators=1)
VI("settings", "holes", density(algorithm=VGI(n_updates=1, n_warm_up=1)),
   n_estimators=1)
VI("own network", "normal", density("factor-analysis",
   algorithm=VGI("mixture", network="independent")), n_estimators=1)
VI("pandas", "counts", density("factor-analysis"), output="pandas")

VN = partial(add, "VNCEEstimator")
VN("default", OTHERS)
VN("errors", "bad", max_iter=1, noise_ratio=1)
VN("bell", "normal holes", Bell, max_iter=1, solver=LBFGS(1), keep_empty_features=True)
VN("factor", "normal", Factor, max_iter=1, noise_ratio=2)
VN("short", FEW, max_iter=3, n_init=2, ridge=0.1, output="pandas", verbose=2)

NO = partial(add, "NoisyOr", hidden_layer_sizes=(4,), max_iter=2)
NO("default", "binary sparse bad", 2)
NO("threshold", "normal holes", 2, binarize=2.0, output="pandas", verbose=2)
for name in ["avi", "svi", "lb-cdi", "ub-cdi"]:
    NO(name, "binary sparse", 2, algorithm=name, init="random", alpha=0.5)

FI = partial(add, "ForestImputer", n_estimators=4, n_draws=2, n_completions=1)
FI("default", f"{OTHERS} {CATEGORIES} {PARTS}", gaussian())
FI("errors", "bad", gaussian(max_iter=4), weight=0.5)
FI("weight", f"{FEW} mixed names", gaussian(add_indicator=True), weight=0.9)
FI("keep", "holes names", gaussian(keep_empty_features=True), output="pandas")
FI("lair", "normal mixed", skvnce.LAIRImputer(vae(1), **DRAWN), weight=0.5, verbose=2)

CI = partial(add, "ConstrainedImputer")
CI("default", f"{OTHERS} {CATEGORIES} chunks chunks-mixed", gaussian())
CI("errors", "bad", gaussian(max_iter=4))
SUMS, DERIVED = {"total": [*"abc"]}, {"ratio": (ratio, [*"ab"])}
CI("equations", "sums", gaussian(), sums=SUMS)
CI("derived", "sums", gaussian(add_indicator=True), derived=DERIVED, output="pandas")
CI("both", "sums", gaussian(), sums=SUMS, derived=DERIVED, verbose=2)
CI("lair", "sums", skvnce.LAIRImputer(vae(1), **DRAWN), sums=SUMS)

MIC = partial(add, "MultipleImputationClassifier", imputer=gaussian(), n_draws=4,
              n_estimators=2)
MIC("logistic", "normal weights", estimator=LogisticRegression(), calibration_cv=2)
MIC("trees", "holes levels mixed", calibration_cv=None)
MIC("errors", "bad", estimator=LogisticRegression(), calibration_cv=None)
MIR = partial(add, "MultipleImputationRegressor", imputer=gaussian(), n_draws=4,
              n_estimators=2)
MIR("ridge", "normal weights bad", estimator=Ridge(), cv=2)
MIR("trees", "holes levels mixed")
# fmt: on


def calls(one, table, is_full):
    """Yield method, label, arguments and options of what is recorded of a fit."""
    X, new, key, level = table.X, table.new, table.number, table.level
    fixed, limits = {"random_state": 5}, table.fit
    limits = {k: v for k, v in limits.items() if k in ("lower", "upper")}
    two = {"n_draws": 2, **fixed}
    yield "transform", "", (X,), {}
    yield "transform", "new", (new,), {}
    yield "sample", "list", (X,), {"n_draws": 3, **fixed}
    yield "sample", "new", (new,), two
    shift = {key: -0.5} if level is None else {key: 1, level[0]: {level[1]: 1.5}}
    yield "sample", "shift", (X,), {"shift": shift, **two}
    if is_full and hasattr(X, "shape") and isinstance(X.shape[0], int):
        yield "sample", "array", (X,), {"n_draws": 3, "as_array": True, **fixed}
        mask = np.random.default_rng(9).random(X.shape) < 0.5
        yield "sample", "mask", (X,), {"where": mask, **fixed}
        yield "transform", "mask", (X,), {"where": mask}
        other = list(X.columns)[1] if hasattr(X, "columns") else 1
        rule = {other: lambda T: np.asarray(T[key] if other != 1 else T[:, 0]) > -1}
        yield "sample", "rule", (X[:16],), {"where": rule, **two}
        yield "transform", "rule", (X[:16],), {"where": rule}
        everywhere = {"where": lambda T: {other: np.ones(len(T), dtype=bool)}}
        yield "sample", "function", (X[:16],), everywhere | fixed
        if table.copies:
            more = two if level is None else {"shift": shift, **two}
            yield "sample", "reference", (X,), {"reference": X[:60], **more}
    if limits:
        yield "transform", "limits", (X,), limits
        yield "sample", "limits", (X,), limits | two
        yield "interval", "limits", (X, 0.8, 19, 3), limits
        yield "quantile", "limits", (X, [0.1, 0.9], 19, 3), limits
    if hasattr(one, "predict"):
        yield "predict", "", (new,), {}
        yield "predict_proba", "", (new,), {}
        yield "interval", "", (new, 0.8), {}
        yield "score", "", (X, table.target), {}
    else:
        yield "interval", "", (X,), {"level": 0.8, "n_draws": 19, **fixed}
        yield "quantile", "", (new,), {"q": [0.1, 0.5], "n_draws": 19, **fixed}
    yield "score_samples", "", (X,), {}
    yield "category_probabilities", "", (X,), {}
    if is_full:
        if not hasattr(one, "predict"):
            yield "score", "", (X,), {}
        yield "score_samples", "new", (new,), {"return_std": True}
        yield "category_probabilities", "new", (new,), {}
    yield "objective", "", (X,), {}
    yield "sample_latents", "", (X,), {"n_draws": 2, **fixed}
    yield "sample_rows", "", (6,), fixed
    yield "inverse_transform", "", (np.ones((2, getattr(one, "n_components_", 1))),), {}
    for name in ["edges", "to_networkx", "to_torch", "sample_parameters"]:
        yield name, "", (), {}
    yield "top_terms", "", (3,), {}
    yield "get_feature_names_out", "", (), {}
    yield "fit_posterior", "", (X,), {}  # the last one: it changes the estimator


def plain_frame():
    """Make a frame of five positive numbers, to which all estimators can be fitted."""
    return pd.DataFrame(np.exp(numbers(N) / 3), columns=list("abcde"))


def with_cell(value, row=1, column=0):
    X = plain_frame().astype(object if isinstance(value, str) else float)
    X.iloc[row, column] = value
    return X


def bad_tables():
    """Map what is wrong with a table to the table."""
    X = plain_frame()
    A = X.to_numpy()
    return {
        "order of columns": X[list("edcba")],
        "names": X.rename(columns={"a": "z"}),
        "fewer columns": X[list("abcd")],
        "more columns": X.assign(f=1.5),
        "no names": A,
        "number of columns without names": A[:, :3],
        "no columns": A[:, :0],
        "no rows": X[:0],
        "one row": X[:1],
        "two rows": X[:2],
        "one column": X[["a"]],
        "names twice": X.set_axis(list("aabcd"), axis=1),
        "names of two types": X.set_axis(["a", "b", "c", 3, 4], axis=1),
        "inf": with_cell(np.inf),
        "-inf": with_cell(-np.inf, 4, 3),
        "negative": with_cell(-2.0, 2, 1),
        "text": with_cell("many"),
        "number as text": with_cell("1.5"),
        "text in objects": with_cell("many").to_numpy(),
        "far": with_cell(1e12, 2, 2),
        "very far": with_cell(1e200, 2, 2),
        "near zero": with_cell(1e-250),
        "all missing": X * np.nan,
        "empty column": X.assign(b=np.nan),
        "constant": X * 0 + 2,
        "one dimension": A[:, 0],
        "three dimensions": A[None],
        "series": X["a"],
        "None": None,
        "number": 3.0,
        "string": "table",
        "dict": {"a": [1.0, 2.0]},
        "ragged": [[1.0, 2.0], [1.0]],
        "lists": A.tolist(),
        "masked": np.ma.masked_invalid(A),
        "tensor": torch.tensor(A),
        "complex": A * 1j,
        "bool": A > 1,
        "whole": np.nan_to_num(A).astype(int),
        "half precision": A.astype(np.float16),
        "strings": np.nan_to_num(A).astype(str),
        "sparse": csr_array(np.nan_to_num(A)),
        "dates": X.assign(a=pd.Timestamp("2020-01-01")),
        "durations": X.assign(a=pd.Timedelta(3, "D")),
        "categories": X.assign(a=pd.Categorical(["u", "v"] * (N // 2))),
        "nothing in objects": X.astype(object).where(X.notna(), None),
        "chunks": Chunks([A[:20], A[20:]]),
        "dask": dd.from_pandas(X, npartitions=2),
    }


def bad_mixed():
    """Map what is wrong with a mixed table to the table."""
    X = mixed(N)
    few = X["few"].astype(float)
    return {
        "unknown level": X.assign(text="new"),
        "unknown answer": X.assign(answer=pd.Categorical(["maybe"] * N)),
        "level as number": X.assign(text=3.0),
        "number as text": X.assign(number="much"),
        "new whole number": X.assign(few=few + 7),
        "fraction": X.assign(few=few + 0.5),
        "flag as number": X.assign(flag=0.5),
        "array": X.to_numpy(),
        "without a column": X.drop(columns="text"),
        "unordered": X.assign(size=X["size"].cat.as_unordered()),
        "missing": X.mask(X.notna() | X.isna()),
        "mark": X.assign(text=X["text"].replace("p", "?")),
        "code": X.assign(number=X["number"].fillna(-999.0)),
        "rows twice": pd.concat([X[:20], X[:20]]),
    }


OPTIONS = {  # of methods
    "n_draws": [0, 1.5, "many", None, 10**13],
    "random_state": [-1, "seed"],
    "as_array": [2, "yes"],
    "shift": [
        {"z": 1.0}, {"a": np.inf}, {"a": "low"}, {"a": {"yes": 1.0}}, [1.0], {0: 1.0},
        {"a": 1e9}, {"answer": 1.0}, {"answer": {"no way": 1}}, {"answer": {"no": 99}},
        {},
    ],
    "where": [
        [True], {"z": [True]}, {"a": 0.5}, {"a": [True, False]}, np.ones((N, 5)),
        "all",
        {"a": lambda T: None}, lambda T: 1 / 0, lambda T: [True], lambda T: {"z": True},
        {"number": lambda T: T["answer"] == "yes"},
    ],
    "reference": [
        [[1.0]], plain_frame()[:1], plain_frame() * 0 + 1, plain_frame() * np.nan
    ],
    "min_value": [1e9, {"z": 1.0}, {"a": "low"}, {"a": np.inf}, [[1]], {"answer": 1}],
    "max_value": [-1e9, {"a": [1, 2]}, {"a": -np.inf}, {"flag": 1}, {"number": 0.0}],
    "level": [0, 1, 2.0, "high", None],
    "q": [-1, 2.0, [], "half", [[0.1]], None],
    "sample_weight": [-np.ones(N), np.ones(3), np.zeros(N), "all", [np.nan] * N, 2],
    "n_rows": [0, -1, 1.5, "two"],
    "input_features": [["x"], list("edcba"), 5],
    "return_std": ["yes"],
    "n_terms": [0, "all"],
    "feature_names": [["x"]],
    "Z": [np.ones((2, 99)), [["a"]], [[np.nan]], 3],
}  # fmt: skip
PARAMETERS = {  # that need more than one wrong type
    "min_value": [{"z": 1}, {"a": "least"}, [1, 2], np.nan, "least", {"a": 1e9}, 1e9],
    "max_value": [{"z": 1}, {"a": None}, [[1.0]], -1e9, {0: 1}, np.inf, {"b": [1, 2]}],
    "categorical_features": [
        ["z"], [9], {"a": "kind"}, {"a": ["u", "v"]}, [True], {"z": 1},
        {"a": "passthrough"}, "from", {"a": 3},
    ],
    "sums": [{"z": ["a"]}, {"a": ["z"]}, {"a": []}, {"a": [*"ab"]}, {"a": [*"bc"]}],
    "derived": [{"a": 3}, {"a": (ratio, ["z"])}, {"a": (ratio, ["a"])}, {"a": (1, [])}],
    "model": [vae(), skvnce.GaussianImputer(), density("flow"), abs],
    "alphas": [[], [-1.0], [0.1, "a"], [[0.1]]],
    "cv": [1, 99],
    "solver": [Adam(-1), Adam(device="tpu"), LBFGS(0), Adam(n_iter_no_change=2)],
    "likelihood": [["normal"], ["student"] * 5, ["bernoulli"] * 5],
    "hidden_layer_sizes": [(), (0,), (1.5,), 3],
    "sampler": [LAIR(0), LAIR(replenish="none"), MWG(-1)],
    "algorithm": [VGI(n_updates=0), MCEM(0), "mcem", "elbo"],
    "n_components": [99],
    "on_misfit": ["raise"],
}  # fmt: skip


def bad_calls(estimator):
    """Yield names and functions without arguments that should mostly raise errors."""
    cls, new = type(estimator), partial(clone, estimator)
    takes_y = not hasattr(estimator, "transform")
    y = {"y": np.arange(N) % 3} if takes_y else {}
    X, methods, fixed = plain_frame(), methods_of(cls()), {"random_state": 5}
    takes_levels = hasattr(estimator, "category_probabilities")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = {"numbers": (new().fit(X, **y), X)}
        if takes_levels or cls is skvnce.VariationalAutoencoder:
            fitted["mixed"] = new().fit(mixed(N), **y), mixed(N)
    for name in methods:
        if name not in ("fit", "fit_transform", "partial_fit"):
            known = [X][: "X" in signature(getattr(cls, name)).parameters]
            yield f"{name} before fit", partial(getattr(new(), name), *known)
    for title, Z in bad_tables().items():
        n = {"no rows": 0, "one row": 1, "two rows": 2}.get(title, N)
        target = {key: value[:n] for key, value in y.items()}
        yield f"fit {title}", lambda Z=Z, o=target: new().fit(Z, **o) and None
        if hasattr(estimator, "partial_fit"):
            one = deepcopy(fitted["numbers"][0])
            yield (
                f"partial_fit {title}",
                lambda Z=Z, one=one: one.partial_fit(Z) and None,
            )
    for kind, (one, good) in fitted.items():
        tables = bad_tables() if kind == "numbers" else bad_mixed()
        if kind == "mixed":
            for title, Z in tables.items():
                yield f"fit mixed {title}", lambda Z=Z: new().fit(Z, **y) and None
        for name in methods:
            known = signature(getattr(one, name)).parameters
            is_optional = "X" in known and known["X"].default is not known["X"].empty
            if name in ("fit_posterior", "fit_transform") or is_optional:
                continue
            first = [good] if "X" in known else []
            if first and "fit" not in name and name not in ("quantile", "score"):
                extra = {"n_draws": 9} if "n_draws" in known else {}
                extra |= fixed if "random_state" in known else {}
                for title, Z in tables.items():
                    call = partial(getattr(one, name), Z, **extra)
                    yield f"{name} {kind} {title}", call
            given = dict(y) if name == "fit" else {}
            given |= fixed if "random_state" in known else {}
            for option in sorted(known.keys() & OPTIONS.keys()):
                for number, value in enumerate(OPTIONS[option]):
                    method = getattr(new() if "fit" in name else one, name)
                    call = partial(method, *first, **given | {option: value})
                    yield f"{name} {kind} {option}[{number}]", call
    for parameter in estimator.get_params(deep=False):
        for number, value in enumerate(
            ["nonsense", -7, *PARAMETERS.get(parameter, [])]
        ):

            def call(parameter=parameter, value=value):
                return new().set_params(**{parameter: value}).fit(X, **y) and None

            yield f"{parameter}[{number}]", call
    yield "set_params", lambda: new().set_params(unknown=3)
    yield "set_output", lambda: new().set_output(transform="unknown") and None
    yield "no table", lambda: new().fit()
    if takes_y:
        for number, value in enumerate(
            [None, [0] * N, ["a"] * N, np.full(N, np.nan), [1]]
        ):
            yield f"target[{number}]", lambda v=value: new().fit(X, v) and None


def methods_of(one):
    """List the public methods of an estimator that are ours."""
    left_out = ("set_", "get_params", "get_metadata", "_")
    names = [name for name in dir(type(one)) if not name.startswith(left_out)]
    return [name for name in names if callable(getattr(one, name, None))]
