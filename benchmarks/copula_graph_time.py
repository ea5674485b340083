"""Time and memory of `copula_graph.py`, beside GraphicalLassoCV on the filled table."""

import json
import subprocess
import sys
import time
import warnings

import numpy as np
from _memory import peak_mib
from copula_graph_tables import KINDS, column, random_graph
from sklearn.covariance import GraphicalLassoCV
from sklearn.impute import SimpleImputer
from threadpoolctl import threadpool_limits

from skvnce import CopulaGraphLearner, CopulaGraphLearnerCV
from skvnce.missingness import hide, mcar

ROWS, MISSING = 445, 0.3
NUMERIC = 20, 50, 100, 200, 350
MIXED = 20, 50, 100
SIZES = [("numeric", d) for d in NUMERIC] + [("mixed", d) for d in MIXED]


def example(kind, d):
    """Draw a table with holes, and its columns of categories."""
    rng = np.random.default_rng(d)
    z = rng.multivariate_normal(np.zeros(d), random_graph(d, rng)[1], ROWS)
    categories = {}
    if kind == "mixed":
        kinds = [KINDS[j % len(KINDS)] for j in range(d)]
        z = np.column_stack([column(z[:, j], k, rng) for j, k in enumerate(kinds)])
        nominal = {"binary": "nominal", "nominal": "nominal", "ordinal": "ordinal"}
        categories = {j: nominal[k] for j, k in enumerate(kinds) if k in nominal}
    return hide(z, mcar(z, MISSING, random_state=d)), categories


def measured(kind, d):
    """Time the three fits once each, in this process."""
    X, categories = example(kind, d)
    model = CopulaGraphLearner(random_state=0, categorical_features=categories or None)
    alpha = float(np.sqrt(np.log(d) / len(X)))
    strategy = "mean" if kind == "numeric" else "most_frequent"
    filled = SimpleImputer(strategy=strategy).fit_transform(X)
    warm_up = X[:50, :5]
    CopulaGraphLearner(random_state=0, categorical_features=None).fit(warm_up)
    found = {"memory before": peak_mib()}
    with threadpool_limits(1):
        found["alpha"] = _seconds(model.set_params(alpha=alpha), X)
        found["CV"] = _seconds(CopulaGraphLearnerCV(model, random_state=0), X)
        found["memory"] = peak_mib()
        scaled = (filled - filled.mean(0)) / filled.std(0)
        found["GraphicalLassoCV"] = _seconds(GraphicalLassoCV(), scaled)
    return found


def measured_apart(kind, d):
    """Measure in another process, so that the memory is that of these fits."""
    here = __file__
    ask = [sys.executable, here, kind, str(d)]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _seconds(estimator, X):
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X)
    return round(time.process_time() - begin, 3)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
