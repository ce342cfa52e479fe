"""`python -m tilewright_server …` is the same as `tilewright …`."""

from tilewright_server.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
