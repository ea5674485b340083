"""The model of a variational autoencoder: a linear model plus a network.

    z ~ N(0, I)                                                                    (1)
    x_j | z ~ family_j(mean_j + w_j'z + f_j(z),  scale_j e^(g_j(z)))              (2)

With f = g = 0, the initial state, and normal columns it is factor analysis; this is
obtained by a network (f, g) whose last layer is zero.  Near its lower bound the scale
is less sensitive to g.

Kingma and Welling (2014), Auto-encoding variational Bayes; Rezende, Mohamed and
Wierstra (2014); Simkus et al. (2023), appendix J, for the linear model.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from math import log
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn.functional import linear, silu, softplus

from skvnce._core.distributions.cells import Cells, Families
from skvnce._core.distributions.families import (
    AffineTransformed,
    DiagonalNormal,
    NormalMixture,
)
from skvnce._core.random import PortableNormal, at_quantiles, draw

# exp(3) is 20: deviations of a column differ by at most this factor from scale_j
_STEEPEST = 3.0  # bound of |g|


class VariationalAutoencoderModel(nn.Module):
    """p(z) and p(x | z), eqs. (1) and (2)."""

    def __init__(
        self,
        mean: Tensor,  # (features,)
        loadings: Tensor,  # (features, latents): the w_j
        scale: Tensor,  # (features,): standard deviations given the latents
        network: nn.Module,  # z (*batch, latents) to f and g, (*batch, 2 * features)
        families: Families,
        # minimum standard deviation: without it the likelihood has no maximum
        floor: float,
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.loadings = nn.Parameter(loadings.clone())
        self.free_scale = nn.Parameter(_unbounded(scale, floor))
        self.network, self.families, self.floor = network, families, floor
        # a buffer, so that the prior follows the type and the device of the module
        self.register_buffer("origin", torch.zeros(loadings.shape[1]).to(loadings))

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "VariationalAutoencoderModel":
        """Move the tables of the families with the parameters; types stay."""
        super()._apply(fn, recurse)
        self.families = self.families.on(self.origin.device)
        return self

    @property
    def sizes(self) -> tuple[int, int, list[int]]:
        """Numbers of columns and latents, and of outputs of the hidden layers."""
        widths = [block[-1].out_features for block in self.network.blocks]
        return *self.loadings.shape, widths

    def prior(self) -> DiagonalNormal:
        """Return p(z), of event shape (latents,)."""
        return DiagonalNormal(self.origin, torch.ones_like(self.origin))

    def likelihood(self, z: Tensor) -> Cells:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        f, g = self.network(z).chunk(2, -1)
        loc = linear(z, self.loadings, self.mean) + f
        # a smooth bound of slope 1 at 0; a clamped g would have no gradient beyond
        g = _STEEPEST * torch.tanh(g / _STEEPEST)
        scale = self.floor * torch.exp(softplus(self.free_scale + g))
        return Cells(loc, scale, self.families)

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor, tuple]:
        """Compute the parameters of eq. (2) without a graph.

        `z` (*batch, latents).  Returns `loc`, `log_scale` (*batch, features); `saved`,
        for `differentiate`.
        """
        outputs, saved = self.network.evaluate(z)
        shape, z = (*z.shape[:-1], -1), z.reshape(-1, z.shape[-1])
        f, g = (part.contiguous() for part in outputs.chunk(2, -1))
        loc = f.addmm_(z, self.loadings.T).add_(self.mean)
        bend = g.div_(_STEEPEST).tanh_()
        above = torch.add(self.free_scale, bend, alpha=_STEEPEST)
        log_scale = above.exp().log1p_().add_(log(self.floor))
        return loc.view(shape), log_scale.view(shape), (saved, z, bend, above)

    def differentiate(
        self, saved: tuple, by_loc: Tensor, by_log_scale: Tensor
    ) -> Tensor:  # (*batch, latents): the gradient in z
        """Set the gradients of all parameters from those of the results of `decode`."""
        of_network, z, bend, above = saved
        shape = *by_loc.shape[:-1], -1
        by_loc, by_log_scale = by_loc.flatten(0, -2), by_log_scale.flatten(0, -2)
        by_above = by_log_scale * above.sigmoid()
        by_g = torch.ops.aten.tanh_backward(by_above, bend)
        torch.mm(by_loc.T, z, out=self.loadings.grad)
        torch.sum(by_loc, 0, out=self.mean.grad)
        torch.sum(by_above, 0, out=self.free_scale.grad)
        by_outputs = torch.cat([by_loc, by_g], -1)
        by_z = self.network.differentiate(of_network, by_outputs, needs_input=True)
        return by_z.addmm_(by_loc, self.loadings).view(shape)


def _unbounded(scale: Tensor, floor: float) -> Tensor:
    """Invert the bound of the scale, at a point slightly above it."""
    above = (scale / floor).clamp(min=1.05).log()
    return above.expm1().log()


# ----------------------------------------
# The default network of models and encoders.


_OF_BLOCK = 6  # number of weights and biases of a block


class ResidualPerceptron(nn.Module):
    """A perceptron with a residual block of two layers at each hidden size.

    Its outputs are initially zero.

    `hidden`: sizes of the successive blocks.  `dropout`: dropout rate inside a block.
    Draws of a row share their dropped units: these differ between rows, the last of the
    leading dimensions, but not along the others.

    He, Zhang, Ren and Sun (2016), Identity mappings in deep residual networks.
    """

    def __init__(
        self, n_inputs: int, hidden: tuple[int, ...], n_outputs: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = [n_inputs, *hidden]
        self.joints = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes[:-1], hidden, strict=True)
        )
        self.blocks = nn.ModuleList(_block(size, dropout) for size in hidden)
        self.last = nn.Linear(sizes[-1], n_outputs)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (*batch, n_inputs) to (*batch, n_outputs); differentiable once."""
        outputs = _Residual.apply(
            x.reshape(-1, x.shape[-1]), self.draw_factors(x), *self.leaves
        )
        return outputs.view(*x.shape[:-1], self.last.out_features)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Forget the parameters, which may be replaced."""
        vars(self).pop("leaves", None)
        return super()._apply(fn, recurse)

    @cached_property
    def leaves(self) -> list[Tensor]:
        """Weights and biases of the layers, in their order."""
        inner = [
            layer
            for joint, (_, first, _, _, second) in zip(
                self.joints, self.blocks, strict=True
            )
            for layer in (joint, first, second)
        ]
        every = (*inner, self.last)
        return [part for layer in every for part in (layer.weight, layer.bias)]

    def draw_factors(self, x: Tensor) -> list[Tensor | None]:
        """Draw the factors of the units of each block, (n, width); None for ones."""
        n = x.shape[-2] if x.dim() > 1 else 1
        return [
            _dropout_factors(n, block[1].out_features, block[3].p, x)
            if self.training and block[3].p and x.numel()
            else None
            for block in self.blocks
        ]

    def evaluate(self, x: Tensor) -> tuple[Tensor, tuple]:
        """Map (*batch, n_inputs) to outputs of all rows, (n, n_outputs), without graph.

        Also returns the saved values for `differentiate`.
        """
        factors = self.draw_factors(x)
        outputs, saved = evaluate(self.leaves, factors, x.reshape(-1, x.shape[-1]))
        return outputs, (factors, saved)

    def differentiate(
        self, saved: tuple, slope: Tensor, needs_input: bool = False
    ) -> Tensor | None:  # (n, n_inputs): the gradient in the inputs, if it is needed
        """Set the gradients of the parameters, given that of the outputs.

        `slope` (n, n_outputs).  `saved`: of `evaluate`.
        """
        into = [leaf.grad for leaf in self.leaves]
        return differentiate(self.leaves, *saved, slope, into, needs_input)


def _block(size: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.SiLU(),
        nn.Linear(size, size),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(size, size),
    )


def _dropout_factors(n: int, size: int, rate: float, like: Tensor) -> Tensor:
    """Draw factors of units, which are the same on each device."""
    factors = torch.rand(n, size, dtype=like.dtype).ge_(rate)
    return factors.div_(1 - rate).to(like.device)


class _Residual(torch.autograd.Function):
    """The network as one function: a graph of its operations takes twice as long."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        x: Tensor,
        factors: list[Tensor | None],
        *weights: Tensor,
    ) -> Tensor:
        outputs, saved = evaluate(weights, factors, x)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*weights, *saved)
            ctx.factors = factors
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, slope: Tensor
    ) -> tuple[Tensor | None, ...]:
        n_weights = _OF_BLOCK * len(ctx.factors) + 2
        weights, saved = ctx.saved_tensors[:n_weights], ctx.saved_tensors[n_weights:]
        slopes = [torch.empty_like(weight) for weight in weights]
        needs_input = ctx.needs_input_grad[0]
        slope = differentiate(weights, ctx.factors, saved, slope, slopes, needs_input)
        return slope, None, *slopes


def evaluate(
    weights: Sequence[Tensor], factors: list[Tensor | None], x: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Evaluate a network of some `leaves`.

    `x` (n, n_inputs).  Returns (n, n_outputs); `saved`, for `differentiate`.
    """
    saved = []
    for number, factor in enumerate(factors):
        w, b, w1, b1, w2, b2 = weights[_OF_BLOCK * number :][:_OF_BLOCK]
        joint = linear(x, w, b)
        first = silu(joint)
        inner = linear(first, w1, b1)
        second = silu(inner)
        if factor is not None:
            # in place, because the derivative of silu needs its input only
            second.view(-1, *factor.shape).mul_(factor)
        saved += [x, joint, first, inner, second]
        x = linear(second, w2, b2).add_(joint)
    last = silu(x)
    return linear(last, *weights[-2:]), [*saved, x, last]


def differentiate(
    weights: Sequence[Tensor],  # those of `evaluate`
    factors: list[Tensor | None],
    saved: Sequence[Tensor],
    slope: Tensor,  # (n, n_outputs)
    into: Sequence[Tensor],  # receives the slopes of the weights
    needs_input: bool,
) -> Tensor | None:  # (n, n_inputs): slopes of the inputs, if they are needed
    """Multiply slopes by the derivatives of the outputs of `evaluate`."""
    *saved, x, last = saved
    _differentiate_layer(slope, last, into[-2:])
    slope = _through(slope @ weights[-2], x)
    for number, factor in reversed(list(enumerate(factors))):
        block = slice(_OF_BLOCK * number, _OF_BLOCK * (number + 1))
        (w, _, w1, _, w2, _), here = weights[block], into[block]
        # `evaluate` saves five tensors of each block
        x, joint, first, inner, second = saved[5 * number :][:5]
        _differentiate_layer(slope, second, here[4:])
        through = slope @ w2
        if factor is not None:
            through.view(-1, *factor.shape).mul_(factor)
        through = _through(through, inner)
        _differentiate_layer(through, first, here[2:4])
        slope = slope.add_(_through(through @ w1, joint))
        _differentiate_layer(slope, x, here[:2])
        if number or needs_input:
            slope = slope @ w
    return slope if needs_input else None


def _differentiate_layer(slope: Tensor, x: Tensor, into: Sequence[Tensor]) -> None:
    """Compute the slopes of weight and bias of a linear layer with inputs x."""
    # written into the gradients, which may be views of one vector of the optimiser
    torch.mm(slope.T, x, out=into[0])
    torch.sum(slope, 0, out=into[1])


def _through(slope: Tensor, x: Tensor) -> Tensor:
    """Multiply by the derivative of silu at x."""
    return torch.ops.aten.silu_backward(slope, x)


# ----------------------------------------
# A user's own autoencoder: checks of its two modules.


class UserDecoder(nn.Module):
    """A user's p(z) and p(x | z).

    `module`: its ``prior()`` returns p(z), of event shape (latents,), and its
    ``likelihood(z)`` maps latents (*batch, latents) to p(x_j | z) of all columns, of
    batch shape (*batch, features).
    """

    def __init__(self, module: nn.Module, n_features: int) -> None:
        super().__init__()
        self.module, self.n_features = module, n_features

    @property
    def sizes(self) -> tuple[int, int, list[int]]:
        """Numbers of columns and latents, and of outputs of the linear layers."""
        layers = [m for m in self.module.modules() if isinstance(m, nn.Linear)]
        widths = [layer.out_features for layer in layers]
        return self.n_features, self.prior().event_shape[0], widths or [1]

    def prior(self) -> Distribution:
        """Return p(z)."""
        return self.module.prior()

    def likelihood(self, z: Tensor) -> Distribution:
        """Return p(x_j | z) of all j; (*batch, latents) -> batch (*batch, features)."""
        return self.module.likelihood(z)


def user_autoencoder(
    model: nn.Module, posterior: nn.Module, n_features: int
) -> tuple[UserDecoder, nn.Module]:
    """Check a user's model and encoder; return copies in double precision on the CPU.

    Raises TypeError if they are no modules, or if the model has no `prior` or no
    `likelihood`.  Raises ValueError if a distribution has another shape, or if a
    log-density is not finite.
    """
    for name, module in (("model", model), ("posterior", posterior)):
        if not isinstance(module, nn.Module):
            raise TypeError(f"{name} must be a torch.nn.Module, got {module!r}.")
    for name in ("prior", "likelihood"):
        if not callable(getattr(model, name, None)):
            raise TypeError(f"{type(model).__name__} has no method {name}.")
    parts = (deepcopy(part).cpu().double().eval() for part in (model, posterior))
    decoder, encoder = (part.requires_grad_(False) for part in parts)
    wrapped = UserDecoder(decoder, n_features)
    _check_shapes(wrapped, encoder, n_features)
    return wrapped, encoder


def moved_to(
    decoder: UserDecoder, encoder: nn.Module, device: torch.device
) -> tuple[UserDecoder, nn.Module]:
    """Copy checked modules to a device, and check them there.

    Raises ValueError if they have tensors that torch cannot move.
    """
    parts = tuple(deepcopy(part).to(device) for part in (decoder, encoder))
    try:
        prior = parts[0].prior()
        width = prior.event_shape[0]
        # medians, so that the check uses no random numbers
        half = torch.full((2, 3, width + 1), 0.5, dtype=torch.float64).to(device)
        z = draw(prior, half)
        prior.log_prob(z)
        cells = parts[0].likelihood(z)
        x = at_quantiles(cells, half[..., :1].expand(2, 3, parts[0].n_features))
        cells.log_prob(x)
        q = parts[1](x, torch.ones_like(x).bool())
        q.log_prob(draw(q, half))
    except RuntimeError as error:
        raise ValueError(
            f"model or posterior cannot run on the device {device}: {error} Register "
            "all tensors as parameters or buffers, and make others on the device of "
            "the input; or pass device='cpu'."
        ) from error
    return parts


def _call_encoder(encoder: nn.Module, x: Tensor, observed: Tensor) -> Distribution:
    """Call an encoder, and name it in its errors."""
    try:
        return encoder(x, observed)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"posterior(x, observed) fails for x and observed of shape "
            f"{tuple(x.shape)}, rows with leading dimensions: {error}"
        ) from error


def _distribution(name: str, value: object) -> Distribution:
    if not isinstance(value, Distribution):
        raise TypeError(
            f"{name} must return a torch.distributions.Distribution, got "
            f"{type(value).__name__}."
        )
    return value


def _check_shapes(decoder: UserDecoder, encoder: nn.Module, n_features: int) -> None:
    """Evaluate the modules at a few rows with leading dimensions."""
    prior = _distribution("prior()", decoder.prior())
    if len(prior.event_shape) != 1 or prior.batch_shape:
        raise ValueError(
            "prior() must return a distribution of event shape (latents,) without "
            f"batch shape, got {tuple(prior.event_shape)}, {tuple(prior.batch_shape)}."
        )
    z = prior.sample((2, 3)).double()
    cells = _distribution("likelihood(z)", decoder.likelihood(z))
    if tuple(cells.batch_shape) != (2, 3, n_features) or cells.event_shape:
        raise ValueError(
            f"likelihood(z) must return a distribution of batch shape (*batch, "
            f"{n_features}), one a column of X; for z of shape {tuple(z.shape)} it has "
            f"batch shape {tuple(cells.batch_shape)}, event shape "
            f"{tuple(cells.event_shape)}."
        )
    x = cells.sample()
    for observed in (torch.ones_like(x).bool(), torch.zeros_like(x).bool()):
        name = "posterior(x, observed)"
        q = _distribution(name, _call_encoder(encoder, x, observed))
        shapes = tuple(q.batch_shape), tuple(q.event_shape)
        if shapes != ((2, 3), tuple(prior.event_shape)):
            raise ValueError(
                f"posterior(x, observed) must return a distribution of batch shape "
                f"(2, 3) and event shape {tuple(prior.event_shape)} for x of shape "
                f"{tuple(x.shape)}, got {shapes[0]} and {shapes[1]}."
            )
        if not q.log_prob(z).isfinite().all():
            raise ValueError(
                "posterior(x, observed) has no finite log_prob at draws of the prior."
            )


# ----------------------------------------
# An encoder that corrects the exact posterior of a linear model.
#
#     q(z | x_obs) = law of  m(x_obs) + R v,   v ~ N(shift, diag(scale^2))           (3)
#
# where N(m, R R') is the posterior of the latents of a linear model given the observed
# cells, for any pattern, and shift and log-scale are outputs of a network, initially
# zero.  So before training q already has the additional variance due to missing
# cells.  A mixture of several such v can represent several modes.
#
# Simkus and Gutmann (2024), Improving variational autoencoder estimation from
# incomplete data with mixture variational families, eq. (3); Kingma and Welling (2014).


# exp(2) is 7: deviations differ by at most this factor from those of the linear model
_WIDEST = 2.0  # bound of |log-scale|
_APART = 0.5  # distance of the initial components of a mixture


class Anchor(NamedTuple):
    """The posterior of the linear model for some rows."""

    mean: Tensor  # (*batch, latents)
    root: Tensor  # (*batch, latents, latents): upper triangular R
    # (*batch, features): rows with missing cells at their conditional means
    filled: Tensor


class AnchoredEncoder(nn.Module):
    """q(z | x_obs) by eq. (3)."""

    def __init__(
        self,
        # (x, observed) to an `Anchor`; without parameters, so that training keeps it
        infer: nn.Module,
        # (filled row, mask, anchor's mean) in one to shift and log-scale, of each
        # component in turn, after the logits of all components but one
        network: nn.Module,
        n_components: int,
        n_latents: int,
    ) -> None:
        super().__init__()
        self.infer, self.network, self.n_components = infer, network, n_components
        # equal components would stay equal, as they share the gradient of a draw
        start = _APART * torch.randn(n_components, n_latents)
        self.register_buffer("start", start - start.mean(0))  # 0 for one component

    def forward(self, x: Tensor, observed: Tensor) -> AffineTransformed:
        """Return q(z | x_obs); event shape (latents,), batch shape (*batch,)."""
        observed = observed.expand(x.shape)
        return self.at(self.infer(x, observed), observed)

    def inputs_of(self, anchor: Anchor, observed: Tensor) -> Tensor:
        """Return the inputs of the network; (*batch, n_inputs)."""
        return torch.cat([anchor.filled, observed.to(anchor.mean), anchor.mean], -1)

    def at(self, anchor: Anchor, observed: Tensor) -> AffineTransformed:
        """Return q(z | x_obs) given the posterior of the linear model."""
        k, outputs = self.n_components, self.network(self.inputs_of(anchor, observed))
        logits, inside = outputs[..., : k - 1], outputs[..., k - 1 :]
        shift, free = inside.unflatten(-1, (k, -1)).chunk(2, -1)
        # a smooth bound of slope 1 at 0; clamped values would have no gradient beyond
        scale = torch.exp(_WIDEST * torch.tanh(free / _WIDEST))
        shift = shift + self.start
        if k == 1:
            v = DiagonalNormal(shift.squeeze(-2), scale.squeeze(-2))
            return AffineTransformed(v, anchor.mean, anchor.root)
        # only differences of logits matter, so that the last one is fixed
        logits = torch.cat([logits, torch.zeros_like(logits[..., :1])], -1)
        mixture = NormalMixture(logits, shift, scale, validate_args=False)
        return AffineTransformed(mixture, anchor.mean, anchor.root)

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor, tuple]:
        """Compute the parameters of v in eq. (3), for one component, without a graph.

        `inputs` (n, n_inputs).  Returns `shift`, `log_scale` (n, latents); `saved`, for
        `differentiate`.
        """
        outputs, saved = self.network.evaluate(inputs)
        shift, free = (part.contiguous() for part in outputs.chunk(2, -1))
        bend = free.div_(_WIDEST).tanh_()
        return shift.add_(self.start), _WIDEST * bend, (saved, bend)

    def differentiate(
        self, saved: tuple, by_shift: Tensor, by_log_scale: Tensor
    ) -> None:
        """Set the gradients of the network, given those of the results of `encode`."""
        of_network, bend = saved
        by_free = torch.ops.aten.tanh_backward(by_log_scale, bend)
        self.network.differentiate(of_network, torch.cat([by_shift, by_free], -1))


# ----------------------------------------
# Missing cells, independent given the latents and the observed cells of their row.
#
#   q(x_mis | z, x_obs) = prod_{j missing} N(x_j; loc_j(z, x_obs), scale_j(z, x_obs)^2)
#
# In a decoder x_mis depends only on z.  This is right for z of the exact posterior.
# For z of an approximate posterior, x_obs adds the information that z lacks.  The
# class `AnchoredLatentCells` starts at the first case, p(x_j | z) of a linear model.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data, section 5.3.


# exp(12) is 2e5: squares and inverses of scales are far from overflow in float32
_STEEPEST_SCALE = 12.0  # bound of log-scales


class AnchoredLatentCells(nn.Module):
    """q(x_j | z, x_obs) of all columns: p(x_j | z) of a linear model plus a network.

        x_j ~ N(mean_j + w_j'z + f_j(x_obs, z), (scale_j exp(g_j(x_obs, z)))^2)

    `mean`, `scale` (features,).  `loadings` (features, latents): the w_j.  Mean,
    loadings and scale are initial values; they are trained, too.  `network`: (observed
    cells, zero where missing; mask; latents) in one, (*batch, 2 * features + latents),
    to f and g, (*batch, 2 * features), initially zero.
    """

    def __init__(
        self, mean: Tensor, loadings: Tensor, scale: Tensor, network: nn.Module
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.detach().clone())
        self.loadings = nn.Parameter(loadings.detach().clone())
        self.log_scale = nn.Parameter(scale.detach().log())
        self.network = network

    def forward(self, x: Tensor, observed: Tensor, z: Tensor) -> Normal:
        """Return q of all columns, of batch shape (*batch, features).

        `observed` (bool that broadcasts to (*batch, features)), `z` (*batch, latents).
        `x` (*batch, features): values under the mask are arbitrary.
        """
        mask = observed.expand(x.shape).to(z)
        inputs = torch.cat([x.where(observed, x.new_zeros(())), mask, z], -1)
        f, g = self.network(inputs).chunk(2, -1)
        return _normal(self.mean + z @ self.loadings.T + f, self.log_scale + g)


def _normal(loc: Tensor, log_scale: Tensor) -> Normal:
    scale = log_scale.clamp(-_STEEPEST_SCALE, _STEEPEST_SCALE).exp()
    return PortableNormal(loc, scale, validate_args=False)
