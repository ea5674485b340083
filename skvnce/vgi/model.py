"""Fitted densities whose cells are drawn by chains: draws and scores of rows."""

from collections.abc import Callable, Iterable
from functools import partial
from math import ceil, log, pi
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from skvnce._core.distributions.cells import Families
from skvnce._core.distributions.normal import Normal
from skvnce._core.incomplete import Incomplete
from skvnce._core.models import accept, iwelbo, run_chain, standard_error
from skvnce._core.progress import tell
from skvnce._core.random import Uniforms, at_quantiles, inside, row_keyed
from skvnce._imputer.fitted import Densities, Filled
from skvnce._tables.values import NO_LIMITS, Limits
from skvnce.autoencoder.model import of_rows, of_stream
from skvnce.gaussian import em
from skvnce.gaussian.marginals import CellScores
from skvnce.vgi.training import Hypercube, Pair, metropolised_gibbs

# ----------------------------------------
# Chains of missing cells given a fitted density, from draws of a normal distribution.


TOGETHER = 4  # number of cells that chains accept or reject together
_AT_ONCE = 2**23  # maximum size of a chunk of rows


class FittedPair(NamedTuple):
    """A fitted density, with the start and the range of its chains."""

    pair: Pair
    normal: Normal
    families: Families
    hypercube: Hypercube

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.hypercube.low.device

    def on(self, device: torch.device) -> Self:
        """Move to a device, the modules in place; the normal stays on the CPU."""
        rest = self.families.on(device), self.hypercube.on(device)
        return type(self)(self.pair.on(device), self.normal, *rest)


def normal_start(
    fitted: FittedPair, data: Incomplete, uniforms: Uniforms, n_chains: int
) -> Tensor:  # (n_chains, n, features)
    """Complete rows by draws of the normal given the observed cells.

    An unconditional draw x' is shifted by E[x_mis | x_obs] - E[x_mis | x'_obs] (Hoffman
    and Ribak 1991), so that the draw is a function of numbers keyed by the row.  It is
    computed on the CPU.
    """
    there = data.x.device
    wide = Incomplete(data.x.expand(n_chains, *data.x.shape), data.observed)
    drawn = normal_draw(fitted.normal, wide, uniforms)
    cube = fitted.hypercube.on(drawn.device)
    return data.with_values(drawn.clamp(*cube).to(there))


def normal_draw(normal: Normal, data: Incomplete, uniforms: Uniforms) -> Tensor:
    """Draw missing cells of rows (n_draws, n, features) as `normal_start` does."""
    data = data.on(normal.mean.device)
    # the quantiles of 0 and 1 are infinite
    noise = torch.special.ndtri(uniforms(0, data.x).clamp(2.0**-50, 1 - 2.0**-50))
    free = normal.mean + noise @ torch.linalg.cholesky(normal.covariance).T
    shifted = (data.x - free).where(data.observed, 0.0) + normal.mean
    rows = Incomplete(
        shifted.flatten(0, 1), data.observed.expand(free.shape).flatten(0, 1)
    )
    moved = em.conditional_mean(normal, rows).view(free.shape)
    return data.with_values(free + (moved - normal.mean))


@torch.no_grad()
def draw(
    fitted: FittedPair,
    data: Incomplete,
    streams: Callable[[int], Uniforms],  # maps a purpose to uniform numbers
    *,
    n_chains: int,
    # before the first tables; each sweep visits a missing cell once
    n_sweeps: int,
    n_tables: int = 1,  # number of tables of each chain, one sweep apart
) -> Tensor:  # (n_tables * n_chains, n, features)
    """Draw missing cells by Metropolis-Hastings chains with q as proposal.

    All rows miss the same number of cells: each makes as many steps as it needs.
    """
    n_missing = count_missing(data)
    x = normal_start(fitted, data, streams(0), n_chains)
    part = dequantised_rows(fitted, data, streams(1), n_chains)
    together = min(TOGETHER, n_missing)
    sampler = metropolised_gibbs(
        *fitted.pair, fitted.hypercube, n_together=together, uniforms=streams(2)
    )
    sweep, tables = ceil(n_missing / together), []
    state = sampler.init(part, x)
    state = run_chain(sampler, state, part, n_sweeps * sweep)
    for place in range(n_tables):
        state = run_chain(sampler, state, part, sweep if place else 0)
        tables.append(state.x)
    return torch.cat(tables)


def count_missing(data: Incomplete) -> int:
    """Count the missing cells of a row, the same number in all rows."""
    return int((~data.observed[0]).sum())


def dequantised_rows(
    fitted: FittedPair, data: Incomplete, uniforms: Uniforms, n_draws: int
) -> Incomplete:  # x of shape (n_draws, n, features)
    """Draw cells of rounded columns from their intervals."""
    like = data.x.expand(n_draws, *data.x.shape)
    x = fitted.families.dequantised(like, uniforms(0, like))
    return Incomplete(x.where(data.observed, 0.0), data.observed)


def chunks(fitted: FittedPair, observed: Tensor, n_draws: int) -> Iterable[Tensor]:
    """Group rows with the same number of missing cells, in chunks that fit into memory.

    Yields
    ------
    Tensor of int
        Indices of the rows.
    """
    n_missing, d = (~observed).sum(1), observed.shape[1]
    width = 8 * d + 4 * sum(
        len(w[0, 0]) for w in fitted.pair.conditionals.networks.biases
    )
    size = max(1, _AT_ONCE // (n_draws * width))
    # rows of a chunk make the same number of steps
    for count in n_missing.unique():
        for rows in (n_missing == count).nonzero().squeeze(1).split(size):
            tell(f"rows with {int(count)} missing cells")
            yield rows


# ----------------------------------------
# Proposals of missing cells near draws of a density, for importance sampling.
#
# Where conditionals of a normal distribution or of VGI extrapolate, none of their
# draws may be where the density is.  Random walks of several starts and of steps of
# all sizes climb there; a mixture of normals around their ends is then one of the
# proposals.  The ends do not depend on the draws that are weighted, which leaves
# their mean unbiased.
#
# Cappe, Guillin, Marin and Robert (2004), Population Monte Carlo; Veach and Guibas
# (1995) for the mixture of proposals.


_STEPS = (0.01, 10.0)  # smallest and largest of a random walk, in standard deviations
_WIDTHS = (1 / 16, 1 / 4, 1.0)  # of normals around ends, in their standard deviation
_NARROWEST = 1e-3  # standard deviation of ends that are equal


class Local(NamedTuple):
    """A mixture of normals around centres, of several widths."""

    centres: Tensor  # (n_centres, n, features)
    scale: Tensor  # (n, features): standard deviation of the centres of a row
    observed: Tensor  # bool (n, features): cells that are not drawn

    def sample(self, n_draws: int, uniforms: Uniforms) -> Tensor:
        """Draw cells around random centres; (n_draws, n, features)."""
        like = self.scale.expand(n_draws, *self.scale.shape)
        chosen = uniforms(0, like[..., :1].expand(*like.shape[:-1], 2))
        sizes = chosen.new_tensor([len(self.centres), len(_WIDTHS)])
        centre, width = (chosen * sizes).long().unbind(-1)
        centre = self.centres.gather(0, centre[..., None].expand(like.shape))
        width = self.scale.new_tensor(_WIDTHS)[width][..., None]
        noise = torch.special.ndtri(inside(uniforms(1, like)))
        return centre + width * self.scale * noise

    def log_prob(self, x: Tensor) -> Tensor:
        """Compute log q of the missing cells of rows (n_draws, n, features)."""
        apart = (x[:, None] - self.centres) / self.scale
        square = apart.square().where(~self.observed, 0.0).sum(-1)
        missing = (~self.observed).sum(-1)
        parts = [
            (-square / (2 * width**2)).logsumexp(1) - missing * log(width)
            for width in _WIDTHS
        ]
        units = self.scale.log().where(~self.observed, 0.0).sum(-1)
        n_parts = len(_WIDTHS) * len(self.centres)
        constant = log(n_parts) + missing * log(2 * pi) / 2 + units
        return torch.stack(parts).logsumexp(0) - constant


def local_proposal(
    log_prob: Callable[[Tensor], Tensor],
    start: Incomplete,  # x of shape (n_chains, n, features)
    uniforms: Uniforms,
    n_steps: int,  # each moves all missing cells of a row together
) -> Local:
    """Walk at random from several starts, by Metropolis updates, and keep the ends."""
    x, observed = start
    density, (least, most) = log_prob(x), _STEPS
    for number in range(n_steps):
        both = uniforms(number, x.new_empty(2, *x.shape))
        # sizes are uniform in logarithms, because the right one is not known
        size = least * (most / least) ** both[1, ..., :1]
        step = size * torch.special.ndtri(inside(both[0]))
        proposed = x.where(observed, x + step)
        elsewhere = log_prob(proposed)
        uniform = uniforms(n_steps + number, x[..., :1]).squeeze(-1)
        accepted, _ = accept(torch.stack([density, elsewhere]), uniform)
        x = proposed.where(accepted[..., None], x)
        density = elsewhere.where(accepted, density)
    scale = x.std(0).clamp(min=_NARROWEST)
    return Local(x, scale, observed)


def marginal_draws(normal: Normal, like: Tensor, uniforms: Uniforms) -> Tensor:
    """Draw cells (n_chains, n, features) of the columns of a normal, independently."""
    noise = torch.special.ndtri(inside(uniforms(0, like)))
    scale = normal.covariance.diagonal().sqrt()
    return normal.mean.to(like) + noise * scale.to(like)


# ----------------------------------------
# Log-densities of rows with missing values under a density that VGI has fitted.
#
# They are estimated by importance sampling.  Cells of columns with repeated values
# are known up to an interval, whose probability is scored.
#
# Simkus, Rhodes and Gutmann (2023), Variational Gibbs inference for statistical model
# estimation from incomplete data; Veach and Guibas (1995) for the mixture of
# proposals; Hesterberg (1995), Weighted average importance sampling and defensive
# mixture distributions.


CHAINS = 8  # number of chains of a row
_LOCAL = 3  # number of proposals near random walks for each sweep of all chains
_WALK = 32  # number of steps of the random walks


class Score(NamedTuple):
    """Estimates of log p(x_obs)."""

    log_prob: Tensor  # (n,)
    # (n,): standard errors, from the variance of the weights of draws, or the change
    # without the draw of the largest weight, if it is larger
    error: Tensor


@torch.no_grad()
def score(
    fitted: FittedPair,
    data: Incomplete,
    streams: Callable[[int], Uniforms],
    *,
    n_draws: int,
    n_sweeps: int,
) -> Score:
    """Estimate log p(x_obs) by importance sampling with q as proposal.

    A draw is a sweep of q over the missing cells of a chain, or one of the normal
    given the observed cells, or one near the ends of random walks (`local_proposal`),
    which cover cells that q misses.  It is weighted by the mean density of the sweeps
    from all K chains of its row, of the normal N and of the L others l,

        p(x_obs) = E p(x) (K + 1 + L) /
                   (N(x_mis | x_obs) + L l(x_mis)
                    + sum_k prod_j q_j(x_j | x_<j, x~^k_>j))                       (1)

    The estimate is unbiased.  If the chains follow p(x_mis | x_obs) and q the
    conditionals of p, the weights become equal.  All rows miss the same number of
    cells.
    """
    part = dequantised_rows(fitted, data, streams(3), n_draws)
    log_q, x = part.x.new_zeros(n_draws, len(data.x)), part.x
    if count_missing(data):
        chains = draw(fitted, data, streams, n_chains=CHAINS, n_sweeps=n_sweeps)
        local = local_proposal(
            fitted.pair.model.log_prob,
            _starts(fitted, data, chains, streams),
            streams(7),
            _WALK,
        )
        safe = normal_draw(fitted.normal, part, streams(5)).to(x.device)
        # proposals take turns, so that their shares are those of eq. (1) without noise
        number = torch.arange(n_draws, device=x.device) % (CHAINS + 1 + _LOCAL)
        near = (number > CHAINS)[:, None, None]
        safe = local.sample(n_draws, streams(8)).where(near, safe)
        x, log_q = sweep_from(
            fitted.pair.conditionals, part, chains, safe, streams(4), 1 + _LOCAL
        )
        by_normal = normal_log_prob(fitted.normal, x, data.observed)
        by_local = local.log_prob(x) + log(_LOCAL)
        log_q = torch.cat([log_q, by_normal[:, None], by_local[:, None]], 1)
        log_q = log_q.logsumexp(1) - log(CHAINS + 1 + _LOCAL)
    log_width = fitted.families.log_width(data.x, data.observed)
    log_weight = fitted.pair.model.log_prob(x) - log_q + log_width
    return Score(iwelbo(log_weight), error_of(log_weight))


def error_of(log_weight: Tensor) -> Tensor:
    """Estimate the error of the logarithm of a mean of weights (n_draws, n); (n,).

    The standard error is at most 1, even if a single weight dominates.  Then the change
    of the logarithm without the largest weight, which has no bound, is larger.
    """
    n_draws = len(log_weight)
    largest = log_weight.softmax(0).max(0).values
    change = -torch.log1p(-largest) - log(n_draws / (n_draws - 1))
    error = standard_error(log_weight)
    return torch.where(error > 0, torch.maximum(error, change), 0.0)  # equal weights


def _starts(
    fitted: FittedPair,
    data: Incomplete,
    chains: Tensor,
    streams: Callable[[int], Uniforms],
) -> Incomplete:
    """Start random walks at chains, and at draws of each column alone."""
    part = dequantised_rows(fitted, data, streams(6), 2 * len(chains))
    columns = marginal_draws(fitted.normal, part.x[len(chains) :], streams(9))
    return part._replace(x=part.with_values(torch.cat([chains, columns])))


def sweep_from(
    conditionals: nn.Module,
    data: Incomplete,  # x of shape (n_draws, n, features)
    chains: Tensor,  # (n_chains, n, features)
    # (n_draws, n, features): other proposals, which take the place of the last sweeps
    safe: Tensor,
    uniforms: Uniforms,
    # number of sweeps in n_chains + n_safe that they take the place of
    n_safe: int = 1,
) -> tuple[Tensor, Tensor]:
    """Sweep over the missing cells from chains in turn; return the terms of eq. (1).

    Returns `x` (n_draws, n, features); `log_q` (n_draws, n_chains, n), of the sweep to
    x from each chain.
    """
    n_draws, n_chains = len(data.x), len(chains)
    number = torch.arange(n_draws, device=chains.device)
    chain = number % (n_chains + n_safe)
    is_safe, chain = (chain >= n_chains)[:, None], chain.clamp(max=n_chains - 1)
    states = data._replace(x=data.x.unsqueeze(1)).with_values(chains)
    order = (~data.observed).double().sort(stable=True, dim=-1, descending=True).indices
    numbers = uniforms(0, data.x)
    log_q = 0.0
    for place in range(count_missing(data)):
        columns = order[:, place].expand(states.shape[:-1])
        mine = columns[:, 0].unsqueeze(-1)
        uniform, proposed = (
            values.gather(-1, mine).squeeze(-1) for values in (numbers, safe)
        )
        q = conditionals.at(states[number, chain], columns[:, 0])
        drawn = torch.where(is_safe, proposed, at_quantiles(q, uniform))
        drawn = drawn.unsqueeze(1).expand(columns.shape)
        log_q = log_q + conditionals.at(states, columns).log_prob(drawn)
        states = states.scatter(-1, columns.unsqueeze(-1), drawn.unsqueeze(-1))
    return states[:, 0], log_q


def normal_log_prob(normal: Normal, x: Tensor, observed: Tensor) -> Tensor:
    """Compute log p(x_mis | x_obs) of rows (n_draws, n, features); (n_draws, n)."""
    rows = x.flatten(0, 1).to(normal.mean.device)
    mask = observed.expand(x.shape).flatten(0, 1).to(rows.device)
    visible = Incomplete(rows.where(mask, 0.0), mask)
    complete = Incomplete(rows, torch.ones_like(mask))
    log_prob = em.log_prob(normal, complete) - em.log_prob(normal, visible)
    return log_prob.view(x.shape[:-1]).to(x.device)


# ----------------------------------------
# Fitted densities whose cells are drawn by chains: draws and scores of rows.


_SWEEPS = 5  # of the chains from which log-densities are estimated
_SUMMED = 20  # chains of a row over which tables are summarised
# independent chains, because draws of one chain depend on each other
_APPROXIMATE = {"n_chains": 32, "n_sweeps": 4, "n_tables": 1}


class ChainModel(NamedTuple):
    """A density of the scores of columns, with conditionals by which chains propose."""

    fitted: FittedPair
    scores: CellScores
    n_scored: int  # number of draws by which rows are scored

    def draws(
        self,
        nodes: np.ndarray,
        numbers: Callable,
        *,
        n_chains: int,
        n_sweeps: int,
        n_tables: int,
    ) -> np.ndarray:
        """Draw cells of nodes; (n_tables * n_chains, n, n_model_columns)."""
        drawn = np.repeat(nodes[None], n_tables * n_chains, 0)
        data, _ = self.scores.scores(Incomplete.from_array(nodes))
        for rows in chunks(self.fitted, data.observed, n_chains):
            if data.observed[rows[0]].all():
                continue
            streams = numbers(nodes[rows.numpy()])  # a single row stays a table
            tables = draw(
                self.fitted,
                data.take(rows).on(self.fitted.device),
                streams,
                n_chains=n_chains,
                n_sweeps=n_sweeps,
                n_tables=n_tables,
            )
            drawn[:, rows.numpy()] = self.scores.cells(tables.cpu()).numpy()
        return drawn

    def log_density(self, nodes: np.ndarray) -> Densities:
        """Estimate log-densities of rows and their standard errors; each (n,)."""
        n_draws = self.n_scored
        data, log_slopes = self.scores.scores(Incomplete.from_array(nodes))
        scores = torch.zeros(2, len(nodes)).double()
        for rows in chunks(self.fitted, data.observed, n_draws * CHAINS):
            if not data.observed[rows[0]].any():
                continue
            part = nodes[rows.numpy()]
            scores[:, rows] = torch.stack(
                score(
                    self.fitted,
                    data.take(rows).on(self.fitted.device),
                    lambda purpose, part=part: row_keyed(part, purpose),
                    n_draws=n_draws,
                    n_sweeps=_SWEEPS,
                )
            ).cpu()
        has_cells = data.observed.any(1)
        return (scores[0] + log_slopes.where(has_cells, 0.0)).numpy(), scores[1].numpy()


class ChainMember(NamedTuple):
    """A density whose cells are drawn by chains."""

    model: ChainModel
    n_sweeps: int

    def draws(self, nodes: np.ndarray, n_draws: int, numbers: Callable) -> Filled:
        """Draw cells that will be summarised; see `Member`."""
        n_chains = min(n_draws, _SUMMED)
        sizes = {"n_chains": n_chains, "n_tables": -(-n_draws // n_chains)}
        drawn = self.model.draws(nodes, numbers, n_sweeps=self.n_sweeps, **sizes)
        return drawn[:n_draws], {}

    def draw(
        self, nodes: np.ndarray, n_draws: int, limits: Limits = NO_LIMITS
    ) -> np.ndarray:
        """Draw missing cells; see `CellModel`."""
        sizes = {"n_chains": n_draws, "n_sweeps": self.n_sweeps, "n_tables": 1}
        return self.model.draws(nodes, of_stream, **sizes)

    def mean(self, nodes: np.ndarray) -> Filled:
        """Approximate means; see `Member`."""
        drawn = self.model.draws(nodes, partial(of_rows, 0), **_APPROXIMATE)
        return drawn.mean(0), {}

    def log_density(self, nodes: np.ndarray, *, with_errors: bool = True) -> Densities:
        """Estimate log-densities and their standard errors; see `CellModel`."""
        return self.model.log_density(nodes)
