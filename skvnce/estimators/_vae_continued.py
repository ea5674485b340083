"""Further training of a fitted autoencoder: of all of it, or of the encoder alone."""

from skvnce._random import seed_from
from skvnce.estimators._autoencoder_stream import (
    check_can_stream,
    first_rows,
    trained,
)
from skvnce.estimators._callbacks import shows_progress
from skvnce.estimators._no_table import names_table
from skvnce.estimators._stream import Stream, widened
from skvnce.estimators._validation import keeps_state_on_failure


class ContinuedTraining:
    """Mixin of `VariationalAutoencoder`."""

    @keeps_state_on_failure
    @shows_progress
    def partial_fit(self, X, y=None):
        """Go on learning from more rows.

        The first call is `fit`.  Up to 20,000 rows are kept (fewer if there are more
        than 335 columns), and when their number has doubled since the last fit, the fit
        is repeated with all rows so far.  Every other call goes on training on batches
        of the kept rows and of these.  If there are more rows than can be kept, those
        kept are a random sample, and count for all rows so far.  A share
        `validation_fraction` of the cells of the new rows is held out and chooses the
        number of rounds; if these are less than 100 cells, the rows wait for the next
        call.
        Columns, scores and `n_components_` are those of the last fit.  After a call of
        `fit` itself, whose rows are not kept, its choices are final.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : VariationalAutoencoder

        Raises
        ------
        ValueError, TypeError, DivergenceError
            As in `fit`; ValueError also if the number of columns or `algorithm`
            changed, and for ``algorithm="vbgi-vae"``.
        """
        self._check_parameters()
        check_can_stream(self.algorithm)
        if not hasattr(self, "model_state_"):
            self.fit(X)
            first = first_rows(self._checked(X), seed_from(self.random_state))
            self._stream = first.stored()
            return self
        new = Stream.of(self._checked(X))
        widened(self._schema, new.rows)  # raises an error for its rows
        stream = Stream.after(self._stream, new)
        if stream.is_due:
            self._stream = stream.refitted(self).stored()
            return self
        seed = seed_from(self.random_state)
        self._widen(new.rows)
        [found], stream = trained([self], stream, seed)
        vars(self).update(vars(found))
        self._stream = stream.stored()
        return self

    @names_table
    @keeps_state_on_failure
    def fit_posterior(self, X, y=None):
        """Train the encoder on other rows, with the model held fixed.

        The estimates of `score_samples` and `transform` for such rows become more
        accurate, while the density that they estimate does not change.  Training
        maximises the bound of `algorithm`, or that of MIWAE if the algorithm completes
        rows, for `max_iter` rounds and up to six with decreasing learning rates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN marks missing cells.  Rows that are entirely missing are ignored.
        y : None
            Ignored.

        Returns
        -------
        self : VariationalAutoencoder

        Raises
        ------
        ValueError
            If no row of X has an observed value, or if `algorithm` has changed since
            `fit`.
        DivergenceError
            If training diverges.
        """
        return self._fit_encoder(self._checked(X))
