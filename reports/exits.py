"""How a process ended, in words for a reader.

Owns: those words. Must not know: what an end is worth.
"""

from __future__ import annotations

import signal

from fixtures.evidence.exits import Exit, Exited, Killed, Signaled


def exit_words(ended: Exit) -> str:
    """`exited with code 1`, `ended by SIGSEGV`, `killed by us: no-progress`."""
    if isinstance(ended, Exited):
        return f"exited with code {ended.code}"
    if isinstance(ended, Signaled):
        return f"ended by {_signal_name(ended.signo)}"
    if isinstance(ended, Killed):
        return f"killed by us: {ended.reason}"
    return f"never started: {ended.why}"


def _signal_name(signo: int) -> str:
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"
