"""Which errors of an engine's start are the request's fault, and which the node's."""

from __future__ import annotations

import errno
import unittest

from fixtures.child.canary.cell import of_the_system


class RefusalsTest(unittest.TestCase):
    def test_only_what_the_system_refused_is_no_refusal_of_the_request(self) -> None:
        for error in (
            ValueError("unknown backend"),
            TypeError("unexpected keyword argument"),
            OSError("model does not appear to have a file named config.json"),
            FileNotFoundError(errno.ENOENT, "No such file or directory", "model/config.json"),
        ):
            self.assertFalse(of_the_system(error), error)
        for error in (
            OSError(errno.ENOSPC, "No space left on device"),
            OSError(errno.EMFILE, "Too many open files"),
            PermissionError(errno.EACCES, "Permission denied"),
        ):
            self.assertTrue(of_the_system(error), error)


if __name__ == "__main__":
    unittest.main()
