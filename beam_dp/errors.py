"""The one error for bad data, kept apart so that every layer can raise it."""


class InputError(ValueError):
    """The input data cannot be read as asked.

    The message names the file and the line (or the parameter) and the way out. It never contains any part
    of the data: messages end up in logs and on job pages.
    """
