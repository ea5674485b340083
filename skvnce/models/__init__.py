"""Models p(x), p(x, z) and unnormalised phi(x): mathematics only."""
