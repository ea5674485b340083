"""The bridge to scikit-learn's callbacks (experimental there, since 1.9).

With an older scikit-learn the same names do nothing.
"""

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:
        """Stand-in for scikit-learn before 1.9."""

        def _init_callback_context(self, **kwargs):
            return None

    def with_callbacks(method):
        """Return the method as it is."""
        return method


def report_rounds(estimator, max_iter, *, X):
    """Begin a fit and return what a training loop calls after each round.

    Parameters
    ----------
    estimator : CallbackSupportMixin with a `verbose` parameter
    max_iter : int
    X : ndarray
        The training data, which callbacks may ask for.

    Returns
    -------
    on_round : callable
        (round, loss, change) -> whether a callback asks to stop.
    finish : callable
        To be called once at the end.
    """
    context = estimator._init_callback_context(max_subtasks=max_iter)
    if context is not None:
        context.call_on_fit_task_begin(estimator=estimator, X=X)

    def on_round(n_round, loss, change):
        if estimator.verbose:
            name = type(estimator).__name__
            print(f"[{name}] round {n_round}: loss {loss:.6g}, change {change:.2g}")
        if context is None:
            return False
        task = context.subcontext(task_name="round")
        task.call_on_fit_task_begin(estimator=estimator, X=X)
        metadata = {"loss": loss, "change": change}
        return task.call_on_fit_task_end(estimator=estimator, X=X, metadata=metadata)

    def finish():
        if context is not None:
            context.call_on_fit_task_end(estimator=estimator, X=X)

    return on_round, finish
