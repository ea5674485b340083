"""Predictions of held-out cells, against their definition."""

import pytest
import torch
from vaes import moved_autoencoder, rounded_families, rounded_table

from skvnce._core.incomplete import Incomplete
from skvnce._core.posteriors import draw_latents, stream
from skvnce.autoencoder import vae
from skvnce.autoencoder.vae import Architecture


def by_definition(auto, data, hidden):
    """Use the densities of all cells, by the model."""
    kept = data.observed & ~hidden
    with torch.no_grad():
        q = auto.posterior(data.x, kept)
        z = draw_latents(q, stream(0), 32, data.x)
        inside = auto.model.likelihood(z).log_prob(data.x).where(data.observed, 0.0)
        seen = inside.where(kept, 0.0).sum(-1)
        log_weight = seen + auto.model.prior().log_prob(z) - q.log_prob(z)
        log_share = log_weight.log_softmax(0).unsqueeze(-1)
        return (log_share + inside).logsumexp(0).where(hidden, 0.0).sum(-1)


@pytest.mark.parametrize("rounded", [(), (2, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("student", [False, True])
@pytest.mark.parametrize("far", [1.0, 60.0])
def test_they_are_those_of_the_model(rounded, student, far, seed, monkeypatch):
    """By its intervals and by its densities, in parts of rows, and far off, too."""
    monkeypatch.setattr(vae, "_IN_CACHE", 7)
    torch.manual_seed(seed)
    auto, data = (
        moved_autoencoder(4, 2, rounded, Architecture((6,), 0.2, 1), far),
        rounded_table(rounded, 4),
    )
    if student:
        auto.model.families = rounded_families(*rounded)._replace(
            student=torch.tensor([3])
        )
    hidden = data.observed & (torch.rand(data.x.shape) < 0.3)
    auto.model.eval()
    auto.posterior.eval()
    found = vae.HeldOut(auto, data, hidden).log_prob()
    expected = by_definition(auto, data, hidden)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert (found[~hidden.any(1)] == 0).all() and (found[hidden.any(1)] != 0).all()
    x = data.x.where(data.observed, torch.nan)
    again = vae.HeldOut(auto, Incomplete(x, data.observed), hidden).log_prob()
    assert torch.equal(again, found)


def test_the_modes_of_the_modules_stay(seed):
    torch.manual_seed(seed)
    auto, data = (
        moved_autoencoder(4, 2, (), Architecture((6,), 0.2, 1)),
        rounded_table((), 4),
    )
    hidden = data.observed & (torch.rand(data.x.shape) < 0.3)
    auto.posterior.eval()
    found = vae.held_out_log_prob(auto, data, hidden)
    assert auto.model.training and not auto.posterior.training
    assert torch.equal(found, vae.held_out_log_prob(auto, data, hidden))
