"""What all tests of GraphGate itself need of the process that they run in."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let the children that tests start be interrupted.

    A shell that starts pytest in the background has SIGINT ignored, and so would all its children
    have: those that a test interrupts would go on. What is handled here, they have by default.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
