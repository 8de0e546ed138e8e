"""The one error of this tool, apart from the standard ones."""


class TinyModelError(Exception):
    """Say why no model was made; the text is for the person at the terminal."""
