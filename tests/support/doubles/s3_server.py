"""The part of S3's protocol that a download uses, over HTTP on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.doubles.http_double import Handler, running


@dataclass
class Bucket:
    objects: dict[str, bytes] = field(default_factory=dict)
    refusal: str = ""
    """S3's code of the error that every request gets."""
    broken: str = ""
    """Key of an object that is refused, although it is listed."""
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def s3_server() -> Iterator[Bucket]:
    """Serve one bucket, of any name, until the end of the block."""
    bucket = Bucket()
    with running(_Handler, bucket=bucket) as bucket.url:
        yield bucket


class _Handler(Handler):
    bucket: Bucket

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        _, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.bucket.requests.append(f"{self.command} {unquote(self.path)}")
        if self.bucket.refusal or (key and key == self.bucket.broken):
            code = self.bucket.refusal or "AccessDenied"
            self.answer(403, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>")
        elif not key:
            prefix = parse_qs(parts.query).get("prefix", [""])[0]
            self.answer(200, self._listing(prefix), etag='"0"')
        elif key in self.bucket.objects:
            self.answer(200, self.bucket.objects[key], etag='"0"')
        else:
            self.answer(404, "<Error><Code>NoSuchKey</Code></Error>")

    def _listing(self, prefix: str) -> str:
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.bucket.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
