"""`python -m tilewright_agent.worker`."""

from tilewright_agent.worker import main

if __name__ == "__main__":
    raise SystemExit(main())
