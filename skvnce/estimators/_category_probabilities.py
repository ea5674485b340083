"""The probabilities of levels that imputers predict."""

from skvnce.estimators._callbacks import shows_progress
from skvnce.tables.output import probabilities_as_given


class CategoryProbabilities:
    """Mixin of an `Imputer` that models columns of categories."""

    @shows_progress
    def category_probabilities(self, X):
        """Compute the probabilities of levels given the observed cells of each row.

        They are averages of conditional probabilities given draws of other unobserved
        variables (see the notes of the class).  The random numbers are functions of the
        row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        dict of str to data frame or ndarray of shape (n_samples, n_levels)
            For each column of `categories_` the probabilities of its levels in their
            order, 1 and 0 where the cell is observed: data frames of the library of X
            (whatever `set_output` says) with the levels as names, or arrays if X is no
            data frame.  Columns that were entirely missing at `fit` have none.  Empty
            if there are no categories.
        """
        found = self._predicted(self._checked(X)).probabilities
        return probabilities_as_given(self._schema, found, X)
