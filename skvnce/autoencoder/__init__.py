"""VAE, LAIR and factor analysis of incomplete tables."""
