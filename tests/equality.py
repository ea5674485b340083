"""Records results of all public estimators, and compares them bit for bit.

``python tests/equality.py record FILE`` before changes, and ``compare FILE`` after.
``--only NAME,...`` selects configurations by parts of their names.
"""

import argparse
import hashlib
import os
import pickle
import re
import sys
import time
import warnings
from functools import partial
from inspect import signature

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression, Ridge

import skvnce
from skvnce._core.training import rounds
from skvnce.options import Adam, Chunks, IncompleteDensity

rounds.STEPS = 2  # steps of a round of training
N = 60
PRIVATE = re.compile(r"0x[0-9a-f]{6,}|\bskvnce(\.\w+)*\._\w+\.")


def numbers(missing=0.2, d=4):
    """Draw correlated numbers with missing cells."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 1)) + rng.normal(size=(N, d)) + np.arange(d)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def holes():
    """Add an empty and a constant column, and rows without a cell."""
    X = pd.DataFrame(numbers(), columns=list("abcd"))
    X.insert(2, "empty", np.nan)
    X["constant"] = 3.0
    X.iloc[[3, 8]] = np.nan
    return X


def mixed():
    """Make a frame of columns of all kinds."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=N)
    X = pd.DataFrame(
        {
            "number": z + rng.normal(size=N),
            "answer": pd.Categorical(np.where(z > rng.normal(size=N), "yes", "no")),
            "size": pd.Categorical.from_codes(
                np.digitize(z, [-0.5, 0.5]), ["s", "m", "l"], ordered=True
            ),
            "skewed": np.exp(z + rng.normal(size=N)),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.permutation(N), "D"),
        }
    ).mask(rng.random((N, 5)) < 0.2)
    X.insert(0, "id", [f"row {k}" for k in range(N)])
    X["count"] = rng.poisson(9, N)
    X["few"] = pd.array(rng.integers(0, 4, N), dtype="Int64")
    X.loc[rng.random(N) < 0.2, "few"] = pd.NA
    X["never"], X["always"] = np.nan, "same"
    return X


def groups():
    """Make a frame of rows of groups."""
    rng = np.random.default_rng(3)
    place, time = np.repeat(np.arange(12), 5), np.tile(np.arange(5.0), 12)
    level = rng.normal(size=12)[place]
    X = pd.DataFrame({"a": level + rng.normal(size=N), "b": time + level})
    X["b"] += rng.normal(size=N)
    X["of_group"] = rng.normal(size=12)[place]
    X = X.mask(rng.random(X.shape) < 0.2)
    X.insert(0, "place", place)
    X["time"] = time
    return X


def limits():
    """Give lower and upper limits of missing cells."""
    rng = np.random.default_rng(8)
    low = np.where(rng.random((N, 4)) < 0.5, rng.normal(size=(N, 4)) - 1, np.nan)
    return {"lower": low, "upper": np.where(rng.random((N, 4)) < 0.5, low + 2, np.nan)}


def binary():
    rng = np.random.default_rng(7)
    X = rng.random((N, 2)) < 0.4
    X = (X @ (rng.random((2, 6)) < 0.5)) | (rng.random((N, 6)) < 0.1)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


def sums():
    X = pd.DataFrame(np.random.default_rng(6).gamma(4.0, size=(N, 3)), columns=[*"abc"])
    X["total"], X["ratio"] = X.sum(axis=1), ratio(X["a"], X["b"])
    return X.mask(np.isnan(numbers(d=5)))


def ratio(a, b):
    return a / b


def constant():
    return np.where(np.isnan(numbers()), np.nan, 2.0)


def weights():
    return {"sample_weight": np.arange(N) % 4}


def plain():
    return {}


TABLES = {  # and arguments of `fit`
    "numbers": (numbers, plain),
    "float32": (lambda: numbers().astype(np.float32), plain),
    "marker": (lambda: np.nan_to_num(numbers(), nan=-99.0), plain),
    "positive": (lambda: np.exp(numbers() / 3), plain),
    "holes": (holes, plain),
    "positive holes": (lambda: holes().abs(), plain),
    "mixed": (mixed, plain),
    "groups": (groups, plain),
    "weights": (numbers, weights),
    "limits": (numbers, limits),
    "constant": (constant, plain),
    "binary": (binary, plain),
    "sums": (sums, plain),
    "chunks": (lambda: Chunks([numbers()[:30], numbers()[30:]]), plain),
    "mixed chunks": (lambda: Chunks([mixed()[:30], mixed()[30:]]), plain),
}
CONFIGS = {}  # names to estimators and names of tables


def add(name, estimator, tables):
    """Add a configuration."""
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    CONFIGS[f"{type(estimator).__name__} {name}"] = estimator, tables.split(", ")


def gaussian(**parameters):
    return skvnce.GaussianImputer(n_parameter_draws=2, max_iter=20, **parameters)


VAE = {"max_iter": 1, "hidden_layer_sizes": (4,), "n_importance_samples": 8}
SMALL = {"n_training_draws": 1, "n_importance_samples": 8, "max_iter": 1}
DRAWN = {"n_steps": 2, "n_draws": 6}
ALL = "numbers, float32, holes, constant"
KEEP = {"keep_empty_features": True, "add_indicator": True}
OPEN = {"min_value": -6, "max_value": "observed"}
MARKED = {"missing_values": -99.0}
ON_ALL = Adam(batch_size=16, validation_fraction=0)
PARTS = "chunks, mixed chunks"
vae = skvnce.VariationalAutoencoder

add("", gaussian(), f"{ALL}, mixed, weights, limits, {PARTS}")
add("groups", gaussian(groups="place"), "groups")
add("slopes", gaussian(groups={"place": {"slopes": ["time"]}}), "groups")
add("no draws", skvnce.GaussianImputer(n_parameter_draws=0, shrinkage=0.3), "holes")
add("normal", gaussian(marginals="normal", tol=0.1, **OPEN), "numbers, limits")
add("keep", gaussian(**KEEP), "holes, mixed, constant")
add("marker", gaussian(**MARKED), "marker")
add("median", gaussian(strategy="median", on_misfit="ignore"), "numbers, mixed")
MIXTURE = {"n_estimators": 2, "max_iter": 4}
add("", skvnce.MixtureImputer(**MIXTURE), f"{ALL}, mixed, weights, {PARTS}")
add("keep", skvnce.MixtureImputer(3, **MIXTURE, **KEEP), "holes, mixed, constant")
add("one", skvnce.MixtureImputer(1, n_estimators=1, **MARKED), "marker")
TREES = {"n_estimators": 4, "n_parameter_draws": 2}
add("", skvnce.TableImputer(**TREES), f"{ALL}, mixed, weights, {PARTS}")
add("keep", skvnce.TableImputer(**TREES, **KEEP), "holes, constant")
COLUMNS = {"regressor": Ridge(), "classifier": LogisticRegression(), "n_draws": 2}
add("", skvnce.ColumnImputer(gaussian(), **COLUMNS), f"{ALL}, mixed, weights, chunks")
add("keep", skvnce.ColumnImputer(gaussian(**KEEP), **COLUMNS), "holes, constant")
add("marker", skvnce.ColumnImputer(gaussian(**MARKED), **COLUMNS), "marker")
STACK = [gaussian(), skvnce.MixtureImputer(2, **MIXTURE)]
add("stack", skvnce.ColumnImputer(STACK, **COLUMNS), "numbers, mixed")
add("", skvnce.ConstrainedImputer(gaussian()), f"{ALL}, weights, chunks")
RULES = {"sums": {"total": [*"abc"]}, "derived": {"ratio": (ratio, [*"ab"])}}
add("rules", skvnce.ConstrainedImputer(gaussian(**KEEP), **RULES), "sums")
add("", skvnce.CopulaGraphLearner(max_iter=20), f"{ALL}, mixed, limits, {PARTS}")
quick = skvnce.CopulaGraphLearner(max_iter=10)
add("", skvnce.CopulaGraphLearnerCV(quick, alphas=3), "holes, mixed, constant")
BY_FOLDS = {"alphas": [0.3, 0.1], "selection": "cv", "cv": 2}
add("cv", skvnce.CopulaGraphLearnerCV(quick, **BY_FOLDS), "holes")
GRAPHS = "positive, positive holes, constant"
add("", skvnce.TruncatedGaussianGraphLearner(), GRAPHS)
for algorithm in ["vnce", "maximum-likelihood"]:
    few = {"max_iter": 2, "n_steps": 2}
    add(
        algorithm,
        skvnce.TruncatedGaussianGraphLearner(algorithm=algorithm, **few),
        "positive",
    )
quick = skvnce.TruncatedGaussianGraphLearner(max_iter=10)
add("", skvnce.TruncatedGaussianGraphLearnerCV(quick, alphas=3), GRAPHS)
add("cv", skvnce.TruncatedGaussianGraphLearnerCV(quick, **BY_FOLDS), "positive")
DRAWS = {"selection": "stability", "n_subsamples": 3}
add(
    "stability",
    skvnce.TruncatedGaussianGraphLearnerCV(quick, alphas=3, **DRAWS),
    "positive",
)
add("", skvnce.IncompleteFactorAnalysis(max_iter=20), f"{ALL}, weights, chunks")
add("two", skvnce.IncompleteFactorAnalysis(2, max_iter=20), "holes")
add("", vae(**VAE), f"{ALL}, mixed, weights")
add("siwae", vae(2, algorithm="miss-siwae", solver=ON_ALL, **VAE), "holes")
add("student", vae(1, likelihood="student", marginals="normal", **VAE), "numbers")
add("", skvnce.LAIRImputer(vae(**VAE), n_estimators=2, **DRAWN), f"{ALL}, mixed")
LAIR = {"n_estimators": 2, "strategy": "median", **KEEP, **DRAWN}
add("keep", skvnce.LAIRImputer(vae(2, solver=ON_ALL, **VAE), **LAIR), "holes, mixed")
add("marker", skvnce.LAIRImputer(vae(**VAE), **MARKED, **DRAWN), "marker")
add("weights", skvnce.LAIRImputer(vae(**VAE), **DRAWN), "weights")
density = IncompleteDensity("factor-analysis", **SMALL)
add("", skvnce.VGIImputer(IncompleteDensity(**SMALL), **DRAWN), f"{ALL}, mixed")
VGI = {"n_estimators": 2, **OPEN, **KEEP, **DRAWN}
add("keep", skvnce.VGIImputer(density, **VGI), "holes, constant, mixed")
flow = IncompleteDensity("flow", solver=Adam(8), **SMALL)
add("flow", skvnce.VGIImputer(flow, strategy="mode", **DRAWN), "weights")
add("", skvnce.VNCEEstimator(max_iter=3), ALL)
NOISY = {"hidden_layer_sizes": (4,), "max_iter": 2}
add("", skvnce.NoisyOr(2, **NOISY), "binary")
add("threshold", skvnce.NoisyOr(2, binarize=2.0, **NOISY), "numbers, holes")
FEW = {"n_draws": 3, "n_estimators": 2}
classifier = skvnce.MultipleImputationClassifier
add(
    "",
    classifier(gaussian(), LogisticRegression(), calibration_cv=2, **FEW),
    "numbers, weights",
)
regressor = skvnce.MultipleImputationRegressor
add("", regressor(gaussian(), Ridge(), cv=2, **FEW), "numbers, holes")


def calls(estimator, X, options):
    """Yield names of methods, and arguments with which a result is recorded."""
    limits = {k: v for k, v in options.items() if k in ("lower", "upper")}
    fixed = {"random_state": 5}
    yield "transform", (X,), limits
    yield "sample", (X,), {"n_draws": 3, **fixed}
    if limits:
        yield "sample", (X,), {"n_draws": 2, **fixed, **limits}
    if isinstance(X, pd.DataFrame | np.ndarray):
        new = X[10:30] if isinstance(X, np.ndarray) else X.iloc[10:30]
        yield "transform", (new,), {}
        yield "sample", (new,), {"n_draws": 2, "as_array": True, **fixed}
        key = 0 if isinstance(X, np.ndarray) else X.columns[1]
        yield "sample", (X,), {"shift": {key: -0.5}, "n_draws": 2, **fixed}
        mask = np.random.default_rng(9).random(X.shape) < 0.5
        yield "sample", (X,), {"where": mask, **fixed}
        interval = () if hasattr(estimator, "predict") else (9, 3)
        yield "interval", (new, 0.8, *interval), {}
        if len(X.shape) == 2 and X.shape[1] < 6:
            yield "sample", (new,), {"reference": X[:40], **fixed}
        yield "partial_fit", (X,), {}
        yield "transform", (X,), {}
        yield "sample", (X,), {"n_draws": 2, **fixed}
    yield "score_samples", (X,), {}
    yield "category_probabilities", (X,), {}
    yield "objective", (X,), {}
    yield "sample_latents", (X,), {"n_draws": 2, **fixed}
    yield "sample_rows", (6,), fixed
    for name in ["predict", "predict_proba"]:
        yield name, (X,), {}
    for name in ["edges", "to_torch", "sample_parameters", "get_feature_names_out"]:
        yield name, (), {}


def reduced(value):
    """Reduce a result to arrays, numbers, texts, and lists and dicts of these."""
    kind = type(value).__name__
    if isinstance(value, bool | int | float | type(None)):
        return value
    if isinstance(value, torch.Tensor):
        return [kind, value.detach().numpy().copy()]
    if isinstance(value, torch.nn.Module):
        return [kind, reduced(dict(value.state_dict()))]
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [kind, value.shape, [reduced(one) for one in value.ravel()]]
        return np.array(value)
    if isinstance(value, dict):
        return {str(key): reduced(one) for key, one in value.items()}
    if isinstance(value, pd.DataFrame):
        columns = [value.iloc[:, j] for j in range(value.shape[1])]
        cells = [[str(one.dtype), reduced(one.to_numpy())] for one in columns]
        return [kind, reduced([*value.index]), reduced([*value.columns]), cells]
    if isinstance(value, list | tuple | Chunks):
        return [kind, *(reduced(one) for one in value)]
    if type(value).__module__.startswith("skvnce.") and hasattr(value, "get_params"):
        return [kind, repr(value), attributes(value)]
    return [kind, PRIVATE.sub("", str(value))]


def attributes(estimator):
    """Collect the public fitted attributes."""
    parameters = estimator.get_params(deep=False)
    names = sorted(name for name in vars(estimator) if name[0] != "_")
    return {k: reduced(vars(estimator)[k]) for k in names if k not in parameters}


def result_of(call):
    """Call a function; return what it returns or raises, and its warnings."""
    torch.manual_seed(0), np.random.seed(0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = reduced(call())
        except Exception as error:
            result = {"raised": [type(error).__name__, PRIVATE.sub("", str(error))]}
    messages = [
        f"{one.category.__name__}: {PRIVATE.sub('', str(one.message))}"
        for one in seen
        if not issubclass(one.category, DeprecationWarning | ResourceWarning)
    ]
    return [result, messages]


def accepts(function, options):
    return options.keys() <= signature(function).parameters.keys()


def run(name, title):
    """Yield keys and results of a configuration and a table."""
    make, options = TABLES[title]
    X, options, one = make(), options(), clone(CONFIGS[name][0])
    options = {k: v for k, v in options.items() if accepts(one.fit, {k: v})}
    if not hasattr(one, "transform"):
        y = np.arange(N) % 3 if is_classifier(one) else np.sin(np.arange(N))
        options["y"] = y
    yield "fit", result_of(lambda: one.fit(X, **options) and None)
    yield "attributes", result_of(lambda: attributes(one))
    for number, (method, arguments, given) in enumerate(calls(one, X, options)):
        function = getattr(one, method, None)
        if function is None or not accepts(function, given):
            continue
        call = result_of(lambda f=function, a=arguments, o=given: f(*a, **o))
        yield f"{method} {number}", call
        if method == "partial_fit":
            yield f"{method} {number} attributes", result_of(partial(attributes, one))
        if number == 1:  # and so before and after the draws of parameters
            one = pickle.loads(pickle.dumps(one))
    yield "attributes after", result_of(lambda: attributes(one))
    if not hasattr(one, "predict"):  # what the first fit has set goes
        has_levels = hasattr(one, "category_probabilities") and title != "mixed"
        fresh = mixed() if has_levels else holes().abs()
        yield "refit", result_of(lambda: attributes(one.fit(fresh)))


def digest(value):
    """Hash a result; all NaN are equal."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            value = np.where(np.isnan(value), np.array(np.nan, value.dtype), value)
        value = (str(value.dtype), value.shape, value.tobytes())
    elif isinstance(value, list | tuple):
        value = [digest(one) for one in value]
    elif isinstance(value, dict):
        value = [(key, digest(one)) for key, one in value.items()]
    return hashlib.sha256(repr(value).encode()).hexdigest()


def differences(old, new, path=""):
    """Yield texts on where two results differ."""
    if digest(old) == digest(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    else:
        before, after = (" ".join(repr(one).split())[:300] for one in (old, new))
        yield f"{path}: {before} is now {after}"


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("file")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[""])
    asked = parser.parse_args()
    print(f"skvnce of {os.path.dirname(skvnce.__file__)}", flush=True)
    names = [name for name in CONFIGS if any(part in name for part in asked.only)]
    old, new, n_different, begin = {}, {}, 0, time.process_time()
    if asked.command == "compare":
        with open(asked.file, "rb") as file:
            old = pickle.load(file)
    for name in names:
        before = time.process_time()
        for title in CONFIGS[name][1]:
            for item, value in run(name, title):
                key = f"{name} | {title} | {item}"
                new[key] = value
                if asked.command == "compare":
                    lines = [*differences(old.get(key), value)]
                    n_different += bool(lines)
                    for line in lines[:4]:
                        print(f"{key}{line}", flush=True)
        print(f"{name}: {time.process_time() - before:.1f} s", flush=True)
    missing = [k for k in old if k not in new and k.split(" | ")[0] in names]
    for key in missing if asked.command == "compare" else []:
        print(f"{key}: is missing")
    print(f"{len(new)} results, {time.process_time() - begin:.0f} CPU seconds")
    if asked.command == "record":
        with open(asked.file, "wb") as file:
            pickle.dump(new, file)
        return 0
    n_different += len(missing)
    print(f"{n_different} differ" if n_different else "all equal")
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
