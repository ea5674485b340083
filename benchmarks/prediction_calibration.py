"""Are probabilities of classes with missing values as large as the shares of rows?

    python benchmarks/prediction_calibration.py [--quick] [--output FILE]

Logistic classes of six correlated normal columns ("linear"), also with one row in eight
of the second class ("rare") and with a product of columns ("product"), 1500 training
rows and 6000 new ones; and breast cancer of scikit-learn, in halves.  Cells are hidden
completely at random.  "Gap" is the largest difference between the mean probability and
the share of the second class, in five bins of equal width with at least 50 new rows;
log-losses are those of new rows.  "Plain" is
`MultipleImputationClassifier(calibration_cv=None)`, "calibrated" its default; trees are
histogram gradient boosting of 40 rounds.
"""

import argparse
import warnings

import numpy as np
from _report import made_by, publish
from _report import table as markdown
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skvnce import GaussianImputer, MultipleImputationClassifier

LOG_ODDS = {
    "linear": lambda X: X @ [1.5, -1.0, 1.0, 0.5, 0.0, 0.0],
    "rare": lambda X: X @ [1.5, -1.0, 1.0, 0.5, 0.0, 0.0] - 3,
    "product": lambda X: 1.5 * X[:, 0] * X[:, 1] + X[:, 2],
}
REAL = {"breast_cancer": load_breast_cancer}
MODELS = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "trees": HistGradientBoostingClassifier(max_iter=40),
}


def drawn(name, rng):
    """Draw a simulated table, or shuffle a real one; returns X and classes 0, 1."""
    if name in REAL:
        X, y = REAL[name](return_X_y=True)
        order = rng.permutation(len(y))
        return X[order], y[order], len(y) // 2
    mixing = np.eye(6) + 0.3 * np.random.default_rng(99).normal(size=(6, 6))
    X = rng.normal(size=(7500, 6)) @ mixing
    y = (rng.random(len(X)) < expit(LOG_ODDS[name](X))).astype(int)
    return X, y, 1500


def gap(said, y):
    """Find the largest difference in bins."""
    place = np.digitize(said, [0.2, 0.4, 0.6, 0.8])
    own = [place == k for k in range(5) if (place == k).sum() >= 50]
    return max(abs(said[one].mean() - y[one].mean()) for one in own)


def measured(name, share, model, seed):
    """Fit both, and return gaps, log-losses and the slope."""
    rng = np.random.default_rng(seed)
    X, y, n = drawn(name, rng)
    X[rng.random(X.shape) < share] = np.nan
    settings = {"n_draws": 20, "random_state": seed}
    imputer = GaussianImputer(n_parameter_draws=5)
    found = MultipleImputationClassifier(imputer, MODELS[model], **settings)
    calibrated = found.fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1]
    slope, found.slope_, found.intercepts_ = found.slope_, 1.0, np.zeros(2)
    plain = found.predict_proba(X[n:])[:, 1]
    losses = [log_loss(y[n:], one) for one in (plain, calibrated)]
    return [gap(plain, y[n:]), gap(calibrated, y[n:]), *losses, slope]


def main(arguments=None):
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one table, one split")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--output", help="file of the report")
    options = parser.parse_args(arguments)
    names = ["breast_cancer"] if options.quick else [*LOG_ODDS, *REAL]
    n_splits = 1 if options.quick else options.splits
    warnings.simplefilter("ignore")
    rows = []
    with threadpool_limits(1):
        for name in names:
            for share in (0.0, 0.2, 0.4):
                for model in MODELS:
                    each = range(n_splits)
                    found = [measured(name, share, model, seed) for seed in each]
                    means = [f"{mean:.3f}" for mean in np.mean(found, 0)]
                    rows.append([name, f"{share:.0%}", model, *means])
                    print(*rows[-1], flush=True)
    header = ["table", "missing", "model", "gap, plain", "gap, calibrated"]
    header += ["log-loss, plain", "log-loss, calibrated", "slope"]
    notes = f"Means of {n_splits} draws of the table or splits. "
    notes += " ".join(__doc__.split("\n\n")[2].split())
    parts = ["# Calibration of classes", made_by("prediction_calibration.py", notes)]
    publish([*parts, markdown(header, rows)], options.output)


if __name__ == "__main__":
    main()
