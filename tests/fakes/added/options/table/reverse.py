"""An engine that the package does not have: all that says what it is."""

from typing import Final

from lmi_backend.options.kinds import BOOL
from lmi_backend.options.spec import EngineSpec, Implementation, Option

SPEC: Final = EngineSpec(
    name="reverse",
    title="Reverse!",
    order=9,
    implementation=Implementation(
        name="reverse",
        title="Reverse!",
        engine="lmi_backend.engines.reverse.engine:ReverseEngine",
        # Any module that the workers' interpreter surely has.
        library="json",
        running="slots",
        takes_degrees=False,
        arguments={"option.dtype": "precision"},
        needs_model=False,
        one_process="a word is turned around by one process",
    ),
    rolling_batch="reverse",
    entry_points=("djl_python.reverse",),
    feature="reverse",
    max_running=7,
)

SHOUT: Final = Option(
    name="option.shout",
    kind=BOOL,
    default=False,
    scope="reverse",
    engine_args={"reverse": "upper"},
    help="Answer in capitals.",
)
