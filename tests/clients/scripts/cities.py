"""What the model is asked for where its answer has a form."""

from typing import Literal

from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    city: Literal["Rome"]
