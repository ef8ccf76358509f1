"""The command line: wires the stages together, one thin file per group of verbs."""
