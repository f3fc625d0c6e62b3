"""What can go wrong by a user's hand."""


class UserError(ValueError):
    """One line that names the thing, the value and the way out. The command line prints it and exits with 2."""
