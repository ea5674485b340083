"""The default network of models and encoders."""

from torch import Tensor, nn


class ResidualPerceptron(nn.Module):
    """A perceptron with a residual block of two layers at each hidden size.

    Its outputs are initially zero.

    Parameters
    ----------
    n_inputs : int
    hidden : sequence of int
        Sizes of the successive blocks.
    n_outputs : int
    dropout : float
        Dropout rate inside a block.

    References
    ----------
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
        """Map (*batch, n_inputs) to (*batch, n_outputs)."""
        for joint, block in zip(self.joints, self.blocks, strict=True):
            x = joint(x)
            x = x + block(x)
        return self.last(nn.functional.silu(x))


def _block(size: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.SiLU(),
        nn.Linear(size, size),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(size, size),
    )
