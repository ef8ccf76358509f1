"""The parametrised suite of the contract tier: one item per cell and gate."""
