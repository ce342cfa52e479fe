"""`python -m tilewright_agent.fleet`."""

from tilewright_agent.fleet import main

if __name__ == "__main__":
    raise SystemExit(main())
