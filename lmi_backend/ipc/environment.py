"""Names of the variables by which our processes tell each other something."""

from typing import Final

RUN_DIR_VARIABLE: Final = "LMI_BACKEND_RUN_DIR"
"""Where private folders are made; its owner removes what a killed stub leaves."""
LIBRARY_PATH_VARIABLE: Final = "LMI_BACKEND_LD_LIBRARY_PATH"
"""What LD_LIBRARY_PATH was before the server's own libraries were put on it."""
TOKEN_VARIABLE: Final = "LMI_BACKEND_TOKEN"  # noqa: S105  the name of a variable
"""What a worker proves that the stub started it with."""
GROUP_VARIABLE: Final = "LMI_BACKEND_GROUP"
"""What the names of a worker's shared memory begin with."""
SAFE_PATH_VARIABLE: Final = "PYTHONSAFEPATH"
"""Known to Python 3.11 and newer; for the worker only, not for what its engine starts."""
