"""`python -m graphgate`: the command line without its script."""

from graphgate.cli import main

if __name__ == "__main__":
    main()
