"""Minimisation of a quadratic over some of its entries, by conjugate gradients."""

import numpy as np
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor, as_tensor

from skvnce.training.proximal import Quadratic

# the error of the minimum is of the order of the square of the residual
_PRECISE = 1e-6  # residual, relative to the target
_STEPS = 3000


def minimise_over(quadratic: Quadratic, free: Tensor) -> float:
    """Minimise ``<A, Q A> / 2 - <G, A>`` where A is zero outside the free entries.

    `free`: the linear space of A restricted to these must contain their gradients.
    Returns the minimum, to about ``1e-12 |G|^2`` over the smallest eigenvalue of Q.
    """
    target = quadratic.target[free]

    def embed(values: np.ndarray) -> Tensor:
        zeros = quadratic.target.new_zeros(free.shape)
        return zeros.masked_scatter(free, as_tensor(values))

    def product(values: np.ndarray) -> np.ndarray:
        return quadratic.product(embed(values))[free].numpy()

    found, _ = cg(
        LinearOperator((len(target),) * 2, product, dtype=float),
        target.numpy(),
        rtol=_PRECISE,
        maxiter=_STEPS,
        # entries may differ strongly in curvature, to which the steps are adapted
        M=diags_array(1 / quadratic.diagonal[free].numpy()),
    )
    point = embed(found)
    return float((point * (quadratic.product(point) / 2 - quadratic.target)).sum())
