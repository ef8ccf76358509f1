"""Meeting an API by its shape: offers by name, and unknown shapes that name their symbol."""

from __future__ import annotations

import unittest

from fixtures.child.contract import shape
from fixtures.child.contract.shape import StandIn, UnknownShapeError


def asks(first: int, second: int = 2, *, third: int) -> tuple[int, int, int]:
    return first, second, third


class ShapeTest(unittest.TestCase):
    def test_offers_are_taken_by_name_and_the_rest_is_left(self) -> None:
        self.assertEqual(shape.call(asks, {"first": 1, "third": 3, "other": 9}), (1, 2, 3))
        self.assertEqual(shape.call(asks, {"first": 1, "third": 3}, first=7), (7, 2, 3))

    def test_a_parameter_that_nobody_offers_is_named(self) -> None:
        with self.assertRaises(UnknownShapeError) as caught:
            shape.call(asks, {"first": 1})
        self.assertIn("asks", caught.exception.symbol)
        self.assertIn("third", caught.exception.detail)

    def test_symbols_are_found_where_they_are(self) -> None:
        self.assertIs(shape.find(["no_such_module:A", "json:loads"]), __import__("json").loads)
        self.assertIsNone(shape.find(["json:no_such", "no.such:thing"]))
        with self.assertRaisesRegex(UnknownShapeError, "json:no_such"):
            shape.need(["json:no_such"])

    def test_a_module_that_breaks_on_import_is_not_taken_for_a_missing_one(self) -> None:
        with self.assertRaises(ImportError):
            shape.module("suites.selftest.child.broken_import")

    def test_a_stand_in_names_what_it_was_asked_for(self) -> None:
        stand_in = StandIn("ModelConfig", dtype="bf16")
        self.assertEqual(stand_in.dtype, "bf16")
        self.assertIsNone(getattr(stand_in, "absent", None))
        with self.assertRaisesRegex(UnknownShapeError, "ModelConfig.absent"):
            _ = stand_in.absent


if __name__ == "__main__":
    unittest.main()
