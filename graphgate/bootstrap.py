"""Makes the virtual environment that `make setup` installs GraphGate into.

Owns: the choice of what lies beneath it. Run by the Python that the user chose, before
anything is installed: only the standard library, and no import of GraphGate's own.

Usage: python graphgate/bootstrap.py FOLDER [MODULES...]

With folders of MODULES (an unpacked bundle's) it is on top of this Python's packages, sees
those folders first, and needs neither pip nor a network.
"""

from __future__ import annotations

import importlib.util
import os
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
    folder, *modules = map(Path, arguments)
    shutil.rmtree(folder, ignore_errors=True)
    if modules:
        make_environment(folder, see_installed=True, with_pip=False)
        show_folders(folder, modules)
        return 0
    with_vllm = importlib.util.find_spec("vllm") is not None
    make_environment(folder, see_installed=with_vllm)
    if with_vllm:
        sys.stdout.write(f"on top of the vLLM that {sys.executable} has\n")
    return 0


def make_environment(folder: Path, *, see_installed: bool, with_pip: bool = True) -> None:
    """A virtual environment, and with this Python's packages visible where asked.

    Raises:
        SystemExit: this Python can't make one (Debian: its python3-venv is missing).
    """
    try:
        venv.create(folder, with_pip=with_pip, symlinks=True, system_site_packages=see_installed)
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


def show_folders(folder: Path, modules: list[Path]) -> None:
    """Puts `modules` before whatever lies beneath, by paths that survive a move of all of it."""
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    lines = [os.path.relpath(module.resolve(), Path(own).resolve()) for module in modules]
    # Read in the order of names: before graphgate-beneath.pth.
    Path(own, "graphgate-above.pth").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
