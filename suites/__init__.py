"""What is swept (models, sweeps) and the pytest side of it; the tests of the tool itself."""
