"""The parametrised suite of the canary tier: one item per cell and gate, on a Hopper GPU."""
