"""A module whose own import fails, for case_shape.py."""

import no_such_module_at_all  # noqa: F401
