"""`python -m bytescheduler` is the command `bytescheduler`."""

from bytescheduler.cli import main

if __name__ == "__main__":
    main()
