"""The model that an upload names, whatever else is in it."""

import pytest

from lmi_backend.errors import HttpError
from lmi_backend.frontend.http.bodies import model_in_upload

KIND = "multipart/form-data; boundary=X"
FILE = b'; filename="a"\r\nContent-Type: audio/wav'


def form(*fields: tuple[bytes, bytes]) -> bytes:
    parts = [
        b"--X\r\nContent-Disposition: form-data; name=" + name + b"\r\n\r\n" + value + b"\r\n"
        for name, value in fields
    ]
    return b"".join(parts) + b"--X--\r\n"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (form((b'"file"' + FILE, b"\xff\0" * 1000), (b'"model"', "é".encode())), "é"),
        (form((b"model", b"a"), (b"file" + FILE, b'name="model"\r\n\r\nb')), "a"),
        (form((b'"model"' + FILE, b"a")), ""),
        (form((b'"models"', b"a")), ""),
        (form((b'"file"' + FILE, b"x" * 200_000)), ""),
        (form(), ""),
        (b"", ""),
        (b"--X\r\nname=model\r\n\r\nnever over", ""),
    ],
)
def test_the_model_is_that_of_the_field(data: bytes, name: str) -> None:
    assert model_in_upload(data, KIND) == name
    assert model_in_upload(data, 'Multipart/Form-Data; charset=x; boundary="X"') == name


@pytest.mark.parametrize(
    "kind", ["", "application/json", "multipart/form-data", "text/plain; boundary=X"]
)
def test_what_is_of_another_type_is_refused(kind: str) -> None:
    with pytest.raises(HttpError, match="accepted: multipart/form-data with a boundary") as raised:
        model_in_upload(form(), kind)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    "data",
    [
        form((b'"prompt"', b"x" * 70_000)),
        form(*[(b'"prompt"', b"x" * 1000)] * 70),
        b"--X" * 2000,
        form((b'"file"; x=' + b"x" * 70_000 + FILE, b"")),
    ],
)
def test_fields_are_bounded(data: bytes) -> None:
    with pytest.raises(HttpError, match="accepted: at most 65536") as raised:
        model_in_upload(data, KIND)
    assert raised.value.status == 413
