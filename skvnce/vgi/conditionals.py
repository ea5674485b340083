"""Univariate variational conditionals q(x_j | x) of all columns of a row.

Each column has its own network, or all columns share a body and each has a small
network on top of it; the networks of all columns are computed in batched matrix
products.  Standard conditionals do not depend on the cell that they draw (section 3.1).
Extended ones also depend on its previous value: the body is then computed once for all
columns (appendix E).

The location of q_j is a linear function of the other cells plus the output of the
network, which is initially zero.  For normal rows the linear part alone is exact,
`anchor`.  To both a fixed function of the other cells may be added, an offset.

Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
estimation from incomplete data, sections 3.1 and 3.3, appendix E.
"""

from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.distributions import AffineTransform, Distribution, TransformedDistribution

from skvnce._core.distributions.cells import Families, NumberOrLevel
from skvnce._core.distributions.families import UnivariateMixture
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.random import PortableNormal
from skvnce.autoencoder.vae import latents_of, order_of
from skvnce.gaussian.latent import fill
from skvnce.gaussian.latent.columns import Latents
from skvnce.gaussian.latent.gibbs import Factors
from skvnce.vgi.splines import MonotonicRQSTransform

# ----------------------------------------
# Families of univariate conditionals: outputs of a network to a distribution.
#
# Every family has a location and a log-scale, to which the linear part of the
# conditionals contributes, and further parameters that are initially zero.


# exp(12) is 2e5: squares and inverses of scales are far from overflow in float32
_STEEPEST = 12.0  # bound of log-scales


class Head(Protocol):
    """A family."""

    n_parameters: int  # including location and log-scale

    def __call__(self, loc: Tensor, log_scale: Tensor, rest: Tensor) -> Distribution:
        """Return the distributions, which have quantiles and `rsample`.

        `loc`, `log_scale` (*batch,), `rest` (*batch, n_parameters - 2).
        """
        ...


def _scale(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(-_STEEPEST, _STEEPEST).exp()


class NormalHead:
    """Normal conditionals."""

    n_parameters = 2

    def __call__(self, loc: Tensor, log_scale: Tensor, rest: Tensor) -> PortableNormal:
        """Return the normals."""
        return PortableNormal(loc, _scale(log_scale), validate_args=False)


class MixtureHead:
    """Mixtures of normals, whose components initially have different locations."""

    def __init__(self, n_components: int = 3) -> None:
        self.n_components = n_components
        self.n_parameters = 2 + 3 * n_components

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor
    ) -> UnivariateMixture:
        """Return the mixtures."""
        scale = _scale(log_scale).unsqueeze(-1)
        logits, apart, widths = rest.chunk(3, -1)
        side = torch.linspace(-1, 1, self.n_components).to(loc)
        return UnivariateMixture(
            logits,
            loc.unsqueeze(-1) + scale * (side + apart),
            scale * widths.clamp(-_STEEPEST, _STEEPEST).exp(),
        )


class SplineHead:
    """A standard normal, transformed by rational-quadratic splines and scalings.

    Each of `n_steps` is an affine map after a spline on [-bound, bound]
    (Simkus et al., section 6.3); the last affine map is location and scale.
    """

    # the defaults are those of the authors
    def __init__(self, n_bins: int = 4, n_steps: int = 3, bound: float = 3.0) -> None:
        self.n_bins, self.n_steps, self.bound = n_bins, n_steps, bound
        self.n_parameters = 2 + n_steps * (3 * n_bins - 1) + 2 * (n_steps - 1)

    def __call__(
        self, loc: Tensor, log_scale: Tensor, rest: Tensor
    ) -> TransformedDistribution:
        """Return the transformed normals."""
        k, n = self.n_bins, self.n_steps
        splines, inner = rest.split([n * (3 * k - 1), 2 * (n - 1)], -1)
        shifts = [*inner.chunk(2, -1)[0].unbind(-1), loc]
        scales = [*inner.chunk(2, -1)[1].unbind(-1), log_scale]
        steps = []
        for spline, shift, log_step in zip(
            splines.chunk(n, -1), shifts, scales, strict=True
        ):
            parts = spline.split([k, k, k - 1], -1)
            steps.append(MonotonicRQSTransform(*parts, bound=self.bound))
            steps.append(AffineTransform(shift, _scale(log_step)))
        unit = torch.zeros_like(loc), torch.ones_like(loc)
        base = PortableNormal(*unit, validate_args=False)
        return TransformedDistribution(base, steps, validate_args=False)


# ----------------------------------------
# Univariate variational conditionals q(x_j | x) of all columns of a row.


# the default of torch and the value of the authors
_SLOPE = 0.01  # of leaky rectifiers, below zero


class ColumnNetworks(nn.Module):
    """One perceptron of leaky rectifiers a column; its outputs are initially zero.

    `sizes`: inputs, hidden layers, outputs.
    """

    def __init__(self, n_columns: int, sizes: list[int]) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in zip(sizes[:-1], sizes[1:], strict=True):
            bound = a**-0.5  # as in torch's linear layers
            self.weights.append(torch.empty(n_columns, a, b).uniform_(-bound, bound))
            self.biases.append(torch.empty(n_columns, 1, b).uniform_(-bound, bound))
        nn.init.zeros_(self.weights[-1])
        nn.init.zeros_(self.biases[-1])

    def forward(self, h: Tensor) -> Tensor:
        """Map (n_columns, n, inputs) to (n_columns, n, outputs)."""
        *inner, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in inner:
            h = nn.functional.leaky_relu(torch.baddbmm(bias, h, weight), _SLOPE)
        weight, bias = last
        return torch.baddbmm(bias, h, weight)

    def of_one(self, h: Tensor, columns: Tensor) -> Tensor:
        """Map (n, inputs) to (n, outputs), each row by the network of its column.

        Rows are sorted by column, so that no weight is copied.
        """
        counts = torch.bincount(columns, minlength=len(self.weights[0]))
        order = columns.argsort()
        first = (counts.cumsum(0) - counts)[columns[order]]
        rank = torch.empty_like(columns)
        rank[order] = torch.arange(len(columns)).to(columns) - first
        laid = h.new_zeros(len(counts), int(counts.max()), h.shape[-1])
        laid = laid.index_put((columns, rank), h)
        return self(laid)[columns, rank]


class _Conditionals(nn.Module):
    """Base class: conditionals made of a body, networks of columns, and a linear part.

    `offset` (nn.Module or None): maps rows (n, features) and columns (n,) to summands
    of the locations and of the logarithms of the scales.
    """

    def __init__(
        self,
        n_features: int,
        head: Head,  # the family
        # shared by all columns, (*batch, features) to (*batch, n_shared); with
        # `nn.Identity()` every column has its own network
        body: nn.Module,
        n_shared: int,  # outputs of the body
        hidden: tuple[int, ...],  # sizes of the hidden layers of each column's network
    ) -> None:
        super().__init__()
        self.head, self.body, self.offset = head, body, None
        self.networks = ColumnNetworks(
            n_features, [n_shared, *hidden, head.n_parameters]
        )
        self.slopes = nn.Parameter(torch.zeros(n_features, n_features))
        self.intercepts = nn.Parameter(torch.zeros(n_features))
        self.log_scales = nn.Parameter(torch.zeros(n_features))
        self.register_buffer("others", 1.0 - torch.eye(n_features))

    def masked(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row, with zero in place of x_j."""
        x = x.expand(*columns.shape, -1)
        return self._at(x, columns, x.scatter(-1, columns.unsqueeze(-1), 0.0))

    def _at(self, x: Tensor, columns: Tensor, inputs: Tensor) -> Distribution:
        """Return q_j of one column a row; `inputs` are the rows that the body reads.

        The body is evaluated once, for any number of columns of each row.
        """
        flat = columns.reshape(-1)
        rows = x.expand(*columns.shape, -1).reshape(len(flat), x.shape[-1])
        shared = self.body(inputs.reshape(-1, inputs.shape[-1]))
        shared = shared.view(*inputs.shape[:-1], shared.shape[-1])
        shared = shared.expand(*columns.shape, -1)
        shared = shared.reshape(len(flat), shared.shape[-1])
        raw = self.networks.of_one(shared, flat)
        # without the diagonal, which would let q_j depend linearly on x_j
        slopes = nn.functional.embedding(flat, self.slopes * self.others)
        loc = (rows * slopes).sum(-1) + self.intercepts[flat]
        log_scale = self.log_scales[flat]
        if self.offset is not None:
            mean, wider = self.offset(rows, flat)
            loc, log_scale = loc + mean, log_scale + wider
        return self.head(
            (loc + raw[:, 0]).view(columns.shape),
            (log_scale + raw[:, 1]).view(columns.shape),
            raw[:, 2:].view(*columns.shape, self.head.n_parameters - 2),
        )


class StandardConditionals(_Conditionals):
    """Conditionals q(x_j | x_-j), which do not depend on x_j; see `_Conditionals`."""

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row."""
        return self.masked(x, columns)

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j after its own cell has changed: q is the same."""
        return q


class ExtendedConditionals(_Conditionals):
    """Conditionals q(x_j | x) that depend on the previous x_j; see `_Conditionals`."""

    def at(self, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j of one column a row."""
        return self._at(x, columns, x)

    def back(self, q: Distribution, x: Tensor, columns: Tensor) -> Distribution:
        """Return q_j after its own cell has changed to its value in x."""
        return self.at(x, columns)


def anchor(conditionals: _Conditionals, mean: Tensor, precision: Tensor) -> None:
    """Set the linear part to that of N(mean, precision^-1), in place.

    ``x_j | x_-j ~ N(mean_j - sum_k K_jk (x_k - mean_k) / K_jj, 1 / K_jj)``, k other
    than j, with K the precision matrix (features, features).
    """
    diagonal = precision.diagonal()
    slopes = -(precision - diagonal.diag()) / diagonal[:, None]
    with torch.no_grad():
        conditionals.slopes.copy_(slopes)
        conditionals.intercepts.copy_(mean - slopes @ mean)
        conditionals.log_scales.copy_(-diagonal.log() / 2)


# ----------------------------------------
# Univariate variational conditionals q(x_j | x) of rows of numbers and levels.
#
# Networks read levels as indicators, and those of x_j are zero in standard
# conditionals. A column of K levels has a categorical distribution, whose logits are
# linear functions of the other cells plus outputs of the column's network, and a
# column of numbers has the head of `skvnce.vgi.conditionals`:
#
#   q(x_j = k | x) = exp(l_jk) / sum_m exp(l_jm),   l_jk = a_jk + b_jk'e(x)_-j + f_jk(x)
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, sections 3.1 and 3.3, for numbers.


class Indicators(nn.Module):
    """Rows as inputs of networks: numbers, and an indicator of each level.

    `n_levels` (int (features,)): of columns of categories; 0 for numbers.  `owners`
    (int (n_inputs,)): the column of each input.  `others` (features, n_inputs): 1, or 0
    for the inputs that belong to the column itself.
    """

    def __init__(self, n_levels: Tensor) -> None:
        super().__init__()
        numbers = (n_levels == 0).nonzero().squeeze(1)
        columns = n_levels.nonzero().squeeze(1)
        sizes = n_levels[columns]
        self.register_buffer("numbers", numbers)
        self.register_buffer("columns", columns.repeat_interleave(sizes))
        first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        self.register_buffer("codes", torch.arange(int(sizes.sum())) - first)
        self.register_buffer("owners", torch.cat([numbers, self.columns]))
        belongs = self.owners == torch.arange(len(n_levels)).unsqueeze(1)
        self.register_buffer("others", (~belongs).float())

    def forward(self, x: Tensor) -> Tensor:
        """Map (*batch, features) to (*batch, n_inputs)."""
        levels = x[..., self.columns].round() == self.codes
        return torch.cat([x[..., self.numbers], levels.to(x)], -1)


class MixedConditionals(nn.Module):
    """Conditionals of numbers and levels, made of a body, networks and a linear part.

    `places` (int (features, most_levels)): where the linear part has the logits of each
    column, or the location of numbers, which is first; the last is repeated.  `owners`
    (int (n_linear,)): the column of each output of the linear part.
    """

    def __init__(
        self,
        inputs: Indicators,
        n_levels: Tensor,  # int (features,): 0 for numbers
        head: Head,  # the family of numbers
        # shared by all columns, (*batch, n_inputs) to (*batch, n_shared)
        body: nn.Module,
        n_shared: int,
        hidden: tuple[int, ...],  # sizes of the hidden layers of each column's network
        # (features, n_inputs): what the networks of a column see, as factors of the
        # inputs: ``inputs.others``, or ones for extended conditionals, which depend on
        # the previous x_j
        visible: Tensor,
    ) -> None:
        super().__init__()
        self.inputs, self.head, self.body = inputs, head, body
        d, widest = len(n_levels), int(n_levels.max())
        self.networks = ColumnNetworks(
            d, [n_shared, *hidden, head.n_parameters + widest]
        )
        sizes = n_levels.clamp(min=1)
        first, within = sizes.cumsum(0) - sizes, torch.arange(widest)
        self.register_buffer("n_levels", n_levels)
        self.register_buffer("visible", visible)
        self.register_buffer("owners", torch.arange(d).repeat_interleave(sizes))
        self.register_buffer(
            "places", first[:, None] + within.minimum(sizes[:, None] - 1)
        )
        n_linear = int(sizes.sum())
        self.slopes = nn.Parameter(torch.zeros(n_linear, len(inputs.owners)))
        self.intercepts = nn.Parameter(torch.zeros(n_linear))
        self.log_scales = nn.Parameter(torch.zeros(d))

    def at(self, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j of one column a row."""
        return self._at(x.expand(*columns.shape, -1), columns, self.visible)

    def back(self, q: NumberOrLevel, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j after its own cell has changed to its value in x."""
        return self.at(x, columns)

    def masked(self, x: Tensor, columns: Tensor) -> NumberOrLevel:
        """Return q_j of one column a row, whose networks do not see x_j."""
        return self._at(x.expand(*columns.shape, -1), columns, self.inputs.others)

    def _at(self, rows: Tensor, columns: Tensor, visible: Tensor) -> NumberOrLevel:
        """Return q_j of rows (*batch, features), one column each.

        The networks see the inputs times the factors of the column, `visible`.
        """
        shape, flat = columns.shape, columns.reshape(-1)
        inputs = self.inputs(rows.reshape(len(flat), -1))
        raw = self.networks.of_one(self.body(inputs * visible[flat].to(inputs)), flat)
        # without own inputs, which would let q_j depend linearly on x_j
        slopes = self.slopes * self.inputs.others[self.owners].to(self.slopes)
        linear = (inputs @ slopes.T + self.intercepts).gather(1, self.places[flat])
        ours, logits = raw.split([self.head.n_parameters, linear.shape[1]], 1)
        number = self.head(
            (linear[:, 0] + ours[:, 0]).view(shape),
            (self.log_scales[flat] + ours[:, 1]).view(shape),
            ours[:, 2:].view(*shape, ours.shape[1] - 2),
        )
        logits = (linear + logits).view(*shape, -1)
        return NumberOrLevel(number, logits, self.n_levels[columns])


# ----------------------------------------
# Where conditionals of a mixture of normals are, as the start of other conditionals.
#
# The conditional of one column given all others, of a mixture of normals with weights
# pi_k, means m_k and precisions P_k, is a mixture with the components
#
#   N(x_j - g_kj / P_kjj, 1 / P_kjj),  g_k = P_k (x - m_k)             (1)
#
# and the log-weights, up to a constant,
#
#   log pi_k + (log det P_k - (x - m_k)'g_k + g_kj^2 / P_kjj - log P_kjj) / 2    (2)
#
# which do not depend on x_j.


class MixtureOffset(nn.Module):
    """Means and standard deviations of the conditionals of a mixture of normals.

    `weights` (n_components,), `means` (n_components, features), `covariances`
    (n_components, features, features).
    """

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        super().__init__()
        precisions = torch.linalg.inv(covariances)
        log_det = torch.linalg.slogdet(precisions).logabsdet
        self.register_buffer("means", means)
        # one matrix, so that all components take one product
        self.register_buffer("joint", precisions.movedim(0, 1).flatten(1))
        self.register_buffer("shift", (precisions @ means[..., None]).flatten())
        self.register_buffer("diagonals", precisions.diagonal(dim1=1, dim2=2).clone())
        self.register_buffer("log_weights", weights.log() + log_det / 2)

    def forward(self, x: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and logarithms of standard deviations.

        `columns` (int (n,)).  `x` (n, features): the cell of its column has no effect.
        Returns `mean`, `log_scale` (n,).
        """
        slopes = torch.addmm(-self.shift, x, self.joint).view(-1, *self.means.shape)
        square = ((x[:, None] - self.means) * slopes).sum(-1)
        column = columns[:, None]
        place = column[:, None].expand(-1, len(self.means), 1)
        slope = slopes.gather(-1, place).squeeze(-1)
        precision = self.diagonals.T[columns]
        mean = x.gather(-1, column) - slope / precision  # eq. (1)
        log_weight = slope.square() / precision - square - precision.log()
        weight = (self.log_weights + log_weight / 2).softmax(-1)  # eq. (2)
        middle = (weight * mean).sum(-1)
        apart = (mean - middle[:, None]).square() + 1 / precision
        return middle, (weight * apart).sum(-1).log() / 2


# ----------------------------------------
# The start of variational Gibbs inference for rows of numbers and levels.
#
# The latent normal model of `skvnce.autoencoder.vae` completes the rows, and rows
# drawn from it give the conditionals: numbers start at their linear regressions on
# the other cells, whose levels are indicators, and levels at linear discriminants,
#
#     log q(x_j = k | x) = log pi_k + m_k'S^-1 e - m_k'S^-1 m_k / 2
#
# up to a constant: e are the inputs that belong to other columns less their means,
# m_k the means of e in the rows of level k, pi_k the share of the level, and S the
# covariance within levels.
#
# Hastie, Tibshirani and Friedman (2009), The elements of statistical learning,
# section 4.3, for linear discriminant analysis.


_ROWS = 2**14  # number of rows from which the conditionals start
# indicators of all levels of a column sum to 1, so that their covariance is singular
_RIDGE = 1e-3  # added to variances of inputs
_PRIOR = 10.0  # weight of the prior of means of levels, in rows
# the same as in `gaussian.marginals`
_FARTHEST = 1e6  # maximum absolute score
_BURN_IN = 10  # sweeps before chains complete rows


class LatentNormal(NamedTuple):
    """The latent normal model of a table."""

    latents: Latents
    normal: Normal  # in the order of the latents

    @classmethod
    def of(cls, normal: Normal, families: Families) -> Self:
        """Reorder the normal distribution of the outputs of an autoencoder."""
        ends = normal.mean.new_tensor([-_FARTHEST, _FARTHEST])  # of any number
        table = ends[:, None].repeat(1, families.n_columns(len(normal.mean)))
        data = Incomplete(table, torch.ones_like(table, dtype=torch.bool))
        latents = latents_of(data, families)
        back = torch.tensor(order_of(latents)).argsort()
        covariance = normal.covariance[back][:, back]
        return cls(latents, Normal(normal.mean[back], covariance))

    def completed(self, data: Incomplete, n_chains: int) -> Tensor:
        """Draw the missing cells given the observed ones; (n_chains, n, features)."""
        models = [Factors.of(self.normal, self.latents)]
        chains = fill.Chains(_BURN_IN, 1)
        tables = fill.draw(
            self.latents,
            models,
            data.take(torch.arange(len(data.x)).repeat(n_chains)),
            chains,
        )
        return tables[0].view(n_chains, *data.x.shape)


def count_levels(families: Families, n_columns: int) -> Tensor:
    """Count the levels of each column, 0 for numbers; (n_columns,)."""
    n_levels = torch.zeros(n_columns, dtype=torch.long)
    for family in families.levels:
        n_levels[family.columns] = family.n_levels
    return n_levels


@torch.no_grad()
def anchor_at(conditionals: MixedConditionals, cells: Tensor, scores: Tensor) -> None:
    """Set the linear part to regressions and discriminants of rows, in place.

    `cells` (n, features).  `scores` (n, features): what the conditionals of numbers
    predict; other columns are not used.
    """
    inputs = conditionals.inputs(cells).double()
    mean = inputs.mean(0)
    covariance = torch.cov(inputs.T, correction=0)
    covariance.diagonal().add_(_RIDGE)
    for j, count in enumerate(conditionals.n_levels.tolist()):
        others = (conditionals.inputs.owners != j).nonzero().squeeze(1)
        part = inputs[:, others] - mean[others]
        spread = covariance[others][:, others]
        if count:
            slopes, levels = _discriminants(part, spread, cells[:, j], count)
        else:
            target = scores[:, j]
            moment = part.T @ (target - target.mean()) / len(part)
            slopes = torch.linalg.solve(spread, moment)[None]
            levels = target.mean()[None]
            rest = target - target.mean() - part @ slopes[0]
            conditionals.log_scales[j] = rest.square().mean().log() / 2
        rows = conditionals.places[j, : len(slopes)]
        conditionals.slopes[rows[:, None], others] = slopes.to(conditionals.slopes)
        intercepts = levels - slopes @ mean[others]
        conditionals.intercepts[rows] = intercepts.to(conditionals.slopes)


def _discriminants(
    inputs: Tensor, covariance: Tensor, codes: Tensor, n_levels: int
) -> tuple[Tensor, Tensor]:
    """Compute slopes and constants of the logits of levels given centred inputs."""
    indicators = torch.nn.functional.one_hot(codes.long(), n_levels).to(inputs)
    number = indicators.sum(0)
    # the logarithm of a level without a row would be infinite
    shares = (number + 0.5) / (len(codes) + 0.5 * n_levels)
    means = indicators.T @ inputs / (number + _PRIOR)[:, None]
    # the covariance of all rows less that between levels
    within = covariance - means.T @ (shares[:, None] * means)
    slopes = torch.linalg.solve(within, means.T).T
    return slopes, shares.log() - (slopes * means).sum(1) / 2


# ----------------------------------------
# The networks of conditionals, and conditionals that start at a normal distribution or
# at the latent normal model.


_BODY = 64  # width of the shared layers of the conditionals
NETWORKS = "shared", "extended", "independent"


def _layers(network: str, n_inputs: int) -> tuple[nn.Module, int, tuple[int, ...]]:
    """Make the body; with its width, and sizes of the layers of each column."""
    if network == "independent":
        return nn.Identity(), n_inputs, (_BODY // 2, _BODY // 2)
    body = nn.Sequential(
        nn.Linear(n_inputs, _BODY), nn.SiLU(), nn.Linear(_BODY, _BODY), nn.SiLU()
    )
    return body, _BODY, (_BODY // 2,)


def anchored_conditionals(
    normal: Normal,
    head: Head,
    network: str = "shared",
    mixture: tuple[Tensor, ...] | None = None,
) -> StandardConditionals | ExtendedConditionals:
    """Make conditionals of a kind of `NETWORKS`, exact for a normal distribution.

    With the weights, means and covariances of a mixture they have its means and
    standard deviations instead.
    """
    d = len(normal.mean)
    kind = ExtendedConditionals if network == "extended" else StandardConditionals
    conditionals = kind(d, head, *_layers(network, d))
    if mixture is None:
        anchor(conditionals, normal.mean, torch.linalg.inv(normal.covariance))
    else:
        conditionals.offset = MixtureOffset(*mixture)
    return conditionals


def mixed_conditionals(
    normal: Normal, families: Families, head: Head, network: str = "shared"
) -> MixedConditionals:
    """Make conditionals of numbers and levels that start at a latent normal model."""
    model = LatentNormal.of(normal, families)
    n_levels = count_levels(families, len(model.latents.marginals))
    inputs = Indicators(n_levels)
    others = inputs.others
    visible = torch.ones_like(others) if network == "extended" else others
    layers = _layers(network, len(inputs.owners))
    conditionals = MixedConditionals(inputs, n_levels, head, *layers, visible)
    z = fill.draw_latents(model.normal, _ROWS)
    anchor_at(conditionals, fill.cells_of(model.latents, z), z[model.latents.first].T)
    return conditionals
