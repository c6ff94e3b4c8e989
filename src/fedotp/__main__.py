"""`python -m fedotp` is the `fedotp` command."""

from fedotp.cli import main

if __name__ == "__main__":
    main()
