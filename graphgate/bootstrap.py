"""Makes the virtual environment that `make setup` installs GraphGate into.

Owns: the choice of what lies beneath it. Run by the Python that the user chose, before
anything is installed: only the standard library, and no import of GraphGate's own.

Usage: python graphgate/bootstrap.py FOLDER
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

OLDEST = (3, 11)


def main(arguments: list[str]) -> int:
    """Makes the environment in the folder that is named; 0, or 1 with a message."""
    if sys.version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        sys.stderr.write(
            f"GraphGate needs Python {wanted} or newer, and {sys.executable} is "
            f"{sys.version.split()[0]}: name another one (make setup PYTHON=python{wanted})\n"
        )
        return 1
    folder = Path(arguments[0])
    shutil.rmtree(folder, ignore_errors=True)
    with_vllm = importlib.util.find_spec("vllm") is not None
    make_environment(folder, see_installed=with_vllm)
    if with_vllm:
        sys.stdout.write(f"on top of the vLLM that {sys.executable} has\n")
    return 0


def make_environment(folder: Path, *, see_installed: bool) -> None:
    """A virtual environment with pip, and with this Python's packages visible where asked.

    Raises:
        SystemExit: this Python can't make one (Debian: its python3-venv is missing).
    """
    try:
        venv.create(folder, with_pip=True, symlinks=True, system_site_packages=see_installed)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"{sys.executable} can't make a virtual environment; install its venv and ensurepip "
            "modules (Debian: apt-get install python3-venv)"
        ) from error
    if see_installed and sys.prefix != sys.base_prefix:
        _show_packages_of_this_environment(folder)


def _show_packages_of_this_environment(folder: Path) -> None:
    """An environment on top of an environment sees only the system's packages by itself."""
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    beneath = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(own, "graphgate-beneath.pth").write_text("\n".join(sorted(beneath)) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
