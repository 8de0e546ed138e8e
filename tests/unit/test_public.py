import subprocess
import sys

import lmi_backend


def test_the_public_face_is_exact() -> None:
    assert lmi_backend.__all__ == ["__version__"]
    assert lmi_backend.__all__ == sorted(lmi_backend.__all__)


def test_the_package_alone_imports_none_of_its_parts() -> None:
    code = "import lmi_backend, sys; print(*(m for m in sys.modules if m.startswith('lmi_')))"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["lmi_backend"]
