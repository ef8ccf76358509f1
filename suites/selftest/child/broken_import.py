"""A module whose own import fails, for case_shape.py."""

import importlib

importlib.import_module("no_such_module_at_all")
