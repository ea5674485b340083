"""Wrong parameters are named by `fit`, which leaves no trace of a fit.

Here are ends of ranges, and what parameters mean together; values of another type or
another word are those of `test_parameters_are_validated_as_by_scikit_learn`.
"""

import numpy as np
import pytest
from energies import Blob
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer

import skvnce
from skvnce.exceptions import DivergenceError
from skvnce.options import LAIR, MCEM, Adam, IncompleteDensity

UNIT = ["normal"] * 3 + ["continuous-bernoulli"]
BINARY = ["normal"] * 3 + ["bernoulli"]
VBGI = {"algorithm": "vbgi-vae"}
LOWER = "diverged. Lower learning_rate_init="
FAST = Adam(learning_rate_init=1e30, validation_fraction=0)
RAW = Adam(learning_rate_init=1e30)
FASTER = {"solver": Adam(learning_rate_init=1e4), "max_iter": 3}
WRONG = {
    skvnce.GaussianImputer: [
        ({"shrinkage": 0}, "shrinkage.* in the range .0.0, inf"),
        ({"n_parameter_draws": -1}, "n_parameter_draws.* in the range .0, inf"),
        ({"n_parameter_draws": 1.5}, "n_parameter_draws.* must be an int", TypeError),
        ({"max_iter": True}, "max_iter.* must be an int", TypeError),
        ({"max_iter": 0}, "max_iter.* in the range .1, inf"),
        ({"tol": -1}, "tol.* in the range .0.0, inf"),
        ({"min_value": 2, "max_value": 1}, "min_value must be below"),
        ({"min_value": [1, 2]}, "min_value must be a number or 4 numbers"),
        ({"max_value": np.nan}, "max_value.* Got nan"),
        ({"max_value": "much"}, "max_value.* among .'observed'"),
    ],
    skvnce.TableImputer: [
        ({"interactions": [(0, 9)]}, "interactions has the key 9, no column of X"),
        ({"interactions": [(0, 1, 2)]}, "interactions must be pairs of columns"),
        ({"n_estimators": -1}, "n_estimators.* in the range .0, inf"),
        ({"n_parameter_draws": 0}, "n_parameter_draws.* in the range .1, inf"),
        ({"min_value": 2, "max_value": 1}, "min_value must be below"),
        ({"max_value": "much"}, "max_value.* among .'observed'"),
    ],
    skvnce.IncompleteFactorAnalysis: [
        ({"n_components": 0}, "n_components.* must be .* in the range .1, inf"),
        ({"max_iter": 0}, "max_iter.* in the range .1, inf"),
        ({"tol": -1}, "tol.* in the range .0.0, inf"),
    ],
    skvnce.ColumnImputer: [
        ({"weight": -0.1}, "'weight' parameter"),
        ({"n_completions": 0}, "'n_completions' parameter"),
        ({"max_samples": 1}, "'max_samples' parameter"),
        ({"n_draws": 0}, "'n_draws' parameter"),
    ],
    skvnce.LAIRImputer: [
        (
            {"model": skvnce.VariationalAutoencoder},
            "'model' parameter of LAIRImputer must",
        ),
        ({"model": SimpleImputer()}, "'model' parameter of LAIRImputer must"),
        (
            {"model": FrozenEstimator(SimpleImputer())},
            "model must be a FrozenEstimator of a VariationalAutoencoder",
        ),
        ({"n_estimators": 0}, "'n_estimators' parameter"),
        ({"n_steps": 0}, "'n_steps' parameter"),
        ({"sampler": LAIR(n_particles=0, n_replenish=0)}, "proposes nothing"),
        ({"sampler": LAIR(n_particles=-1)}, r"'sampler\.n_particles' parameter"),
        ({"sampler": LAIR(n_replenish=-1)}, r"'sampler\.n_replenish' parameter"),
        ({"n_draws": 0}, "'n_draws' parameter"),
        (
            {"model": skvnce.VariationalAutoencoder(max_iter=2, solver=FAST)},
            "diverged",
            DivergenceError,
        ),
    ],
    IncompleteDensity: [
        ({"model": "vae", **FASTER}, LOWER + "10000", DivergenceError),
        ({"model": "flow", **FASTER}, LOWER + "10000", DivergenceError),
        ({"model": "factor-analysis", "algorithm": "mcem"}, "model='coupling-flow'"),
        ({"model": Blob, "algorithm": MCEM()}, "model='coupling-flow'"),
        ({"model": "gan"}, r"'model\.model' parameter of VGIImputer must be a str am"),
        ({"algorithm": "mcem"}, "model='coupling-flow'"),
        ({"algorithm": "em"}, r"'model\.algorithm' parameter of VGIImputer must be"),
        ({"n_training_draws": 0}, r"'model\.n_training_draws' parameter"),
        ({"solver": "adam"}, r"'model\.solver' parameter"),
        ({"solver": Adam(validation_fraction=1.0)}, r"'model\.solver\.validation_frac"),
        ({"solver": Adam(learning_rate_init=0)}, r"'model\.solver\.learning_rate_init"),
        ({"solver": Adam(weight_decay=0.1)}, r"model\.solver\.weight_decay=0\.1 is no"),
        ({"n_importance_samples": 1}, r"'model\.n_importance_samples' parameter"),
    ],
    skvnce.VariationalAutoencoder: [
        ({"n_components": 9}, "n_components=9 must be at most n_features=4"),
        ({"n_posterior_components": 3}, "requires n_posterior_components=1"),
        ({"likelihood": ["poisson"] * 4}, "likelihood must be one of"),
        ({"likelihood": ["normal"]}, "4 strings, one a column"),
        ({"likelihood": "bernoulli"}, "column 0 has"),
        (
            {"likelihood": BINARY, **VBGI},
            "'vbgi-vae' draws .* likelihood='bernoulli' does not accept. Use 'normal'",
        ),
        (
            {"likelihood": "continuous-bernoulli", **VBGI},
            "likelihood='continuous-bernoulli' does not accept",
        ),
        ({"likelihood": UNIT}, "between 0 and 1, and column 3 has"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"dropout": 1.0}, r"'dropout' parameter .* in the range \[0.0, 1.0\)"),
        ({"solver": Adam(validation_fraction=1.5)}, r"solver\.validation_fraction"),
        ({"solver": Adam(batch_size=0)}, r"'solver\.batch_size' parameter"),
        ({"solver": Adam(learning_rate_init=0.0)}, r"'solver\.learning_rate_init'"),
        ({"n_importance_samples": 0}, "n_importance_samples"),
        ({"solver": FAST, "max_iter": 2}, LOWER + r"1e\+30", DivergenceError),
    ],
    skvnce.NoisyOr: [
        ({"n_components": 0}, "'n_components' parameter of NoisyOr must"),
        ({"binarize": np.inf}, "'binarize' parameter"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes must be a tuple"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"n_training_draws": 0}, "'n_training_draws' parameter"),
        ({"solver": Adam(batch_size="all")}, r"'solver\.batch_size'"),
        ({"solver": Adam(learning_rate_init=0)}, r"solver\.learning_rate_i"),
        ({"solver": Adam(weight_decay=1.0)}, r"weight_decay=1\.0 is not us"),
        ({"solver": Adam(n_iter_no_change=2)}, "n_iter_no_change=2 is not"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"max_iter": -(10**400)}, "'max_iter' parameter"),
        ({"alpha": -1.0}, "'alpha' parameter"),
        ({"alpha": np.nan}, "'alpha' parameter"),
        ({"alpha": 10**400}, "'alpha' parameter"),
        ({"alpha": 1e10}, r"'alpha' .* \[0.0, 1000000000.0\]"),
        ({"binarize": 8.0, "solver": RAW}, LOWER + r"1e\+30", DivergenceError),
    ],
    skvnce.TruncatedGaussianGraphLearner: [
        ({"alpha": -0.1}, "alpha.*-0.1"),
        ({"alpha": np.nan}, "alpha.*nan"),
        ({"ridge": -1.0}, "ridge.*-1.0"),
        ({"noise_ratio": 0}, "noise_ratio.*0"),
        ({"n_steps": 0}, "n_steps.*0"),
        ({"max_iter": 0}, "max_iter.*0"),
        ({"tol": -1.0}, "tol.*-1.0"),
        ({"ridge_linear": -1.0}, "ridge_linear.*-1.0"),
    ],
    skvnce.TruncatedGaussianGraphLearnerCV: [
        ({"alphas": []}, "alphas"),
        ({"alphas": [0.1, -1.0]}, "alphas"),
        ({"alphas": [np.nan]}, "alphas"),
        ({"alphas": 0}, "alphas"),
        ({"gamma": -1}, "gamma"),
        ({"n_subsamples": 1}, "n_subsamples"),
        (
            {"model": skvnce.TruncatedGaussianGraphLearner(ridge=-1)},
            "'ridge' parameter",
        ),
        ({"selection": "cv", "cv": 1000}, "n_splits=1000"),
    ],
}
CASES = [(cls, *case) for cls, cases in WRONG.items() for case in cases]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}"
)
def test_wrong_parameters_are_named(case, rng_0):
    cls, options, message, *kind = case
    X = rng_0.gamma(4.0, size=(60, 1)) + rng_0.gamma(4.0, size=(60, 4))
    X[rng_0.random(X.shape) < 0.2] = np.nan
    part = cls is IncompleteDensity
    estimator = skvnce.VGIImputer(cls(**options)) if part else cls(**options)
    if "random_state" in estimator.get_params(deep=False):  # one that shows the error
        estimator.set_params(random_state=options.get("random_state", 0))
    with pytest.raises(*kind or [ValueError], match=message):
        estimator.fit(X)
    assert not [name for name in vars(estimator) if name.endswith("_")]
