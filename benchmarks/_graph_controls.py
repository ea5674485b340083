"""Controls of the papers: methods that `TruncatedGaussianGraphLearner` does not offer.

Two impute missing cells once and then treat them as observed; ``"vnce-cdi-mean"`` and
``"vnce-lognormal-plain"`` are the imputation of the thesis and the posterior of the
paper, in place of which ``"vnce-cdi"`` and ``"vnce-lognormal"`` are offered.
"""

from sklearn.utils._param_validation import StrOptions

from skvnce import TruncatedGaussianGraphLearner
from skvnce.algorithms.graph.problem import CONTROLS
from skvnce.algorithms.graph.single_imputation import FILLERS


class GraphControl(TruncatedGaussianGraphLearner):
    """The graph learner, with a control as `algorithm`.

    Parameters
    ----------
    imputation : {"mean", "noise", "uniform", "zeros"}, default="mean"
        What the two controls ``"imputed-..."`` fill in; see
        `skvnce.algorithms.graph.single_imputation`.
    """

    _parameter_constraints = {
        **TruncatedGaussianGraphLearner._parameter_constraints,
        "algorithm": [StrOptions(set(CONTROLS))],
        "imputation": [StrOptions(set(FILLERS))],
    }

    def __init__(
        self,
        alpha=0.02,
        *,
        algorithm="imputed-score-matching",
        imputation="mean",
        fit_linear=True,
        ridge="auto",
        ridge_linear="auto",
        noise_ratio=10,
        n_steps=30,
        max_iter=100,
        tol="auto",
        on_misfit="warn",
        keep_empty_features=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            alpha,
            algorithm=algorithm,
            fit_linear=fit_linear,
            ridge=ridge,
            ridge_linear=ridge_linear,
            noise_ratio=noise_ratio,
            n_steps=n_steps,
            max_iter=max_iter,
            tol=tol,
            on_misfit=on_misfit,
            keep_empty_features=keep_empty_features,
            random_state=random_state,
            verbose=verbose,
        )
        self.imputation = imputation

    def _options(self):
        return super()._options()._replace(imputation=self.imputation)


def graph_learner(alpha=0.02, *, algorithm, **given):
    """Make the learner of a method, which may be a control."""
    control = algorithm in CONTROLS
    kind = GraphControl if control else TruncatedGaussianGraphLearner
    return kind(alpha, algorithm=algorithm, **given)
