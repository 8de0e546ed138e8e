"""Proxies of others before one server of ours: real programs, with the files of deploy/proxies."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.run.places import ROOT
from tests.support.servers.routers import (
    DEBIAN,
    ENVOY_BINARY,
    HAPROXY_BINARY,
    HAPROXY_PACKAGES,
    Router,
    envoy_version,
    haproxy_version,
    packages,
    version_of,
)

FILES = ROOT / "deploy" / "proxies"
_NGINX = DEBIAN / "nginx" / "usr" / "sbin" / "nginx"
_CADDY = DEBIAN / "caddy" / "usr" / "bin" / "caddy"
_VARNISH = DEBIAN / "varnish" / "usr" / "sbin" / "varnishd"
_STOCK_NGINX = """\
events {}
http {
  access_log off;
  server {
    listen 80;
    location / {
      proxy_pass http://127.0.0.1:8080;
    }
  }
}
"""
"""What people write who know nothing of streams: HTTP/1.0 to the server, and buffers."""


def _written(folder: Path, name: str, text: str, port: int, server: int) -> Path:
    """Write a configuration with the test's ports in the place of its own."""
    changes = {
        "127.0.0.1:8080": f"127.0.0.1:{server}",
        '.port = "8080"': f'.port = "{server}"',
        "port_value: 8080": f"port_value: {server}",
        "listen 80;": f"listen 127.0.0.1:{port};",
        "bind :80\n": f"bind 127.0.0.1:{port}\n",
        "\n:80 {": f"\nhttp://127.0.0.1:{port} {{",
        "port_value: 80}": f"port_value: {port}}}",
    }
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def _nginx(file: str = "") -> Callable[[Path, int, Sequence[int], bool], list[str]]:
    def command(folder: Path, port: int, servers: Sequence[int], _: bool) -> list[str]:
        text = (FILES / file).read_text("utf-8") if file else _STOCK_NGINX
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "\n".join(f"  {kind}_temp_path {folder}/{kind};" for kind in kinds)
        text = text.replace("http {\n", f"http {{\n{folders}\n", 1)
        path = _written(folder, "nginx.conf", text, port, servers[0])
        words = f"daemon off; pid {folder}/pid; error_log stderr;"
        return [str(_NGINX), "-p", str(folder), "-e", "stderr", "-c", str(path), "-g", words]

    return command


def _haproxy(folder: Path, port: int, servers: Sequence[int], _: bool) -> list[str]:
    text = (FILES / "haproxy.cfg").read_text("utf-8")
    path = _written(folder, "haproxy.cfg", text, port, servers[0])
    return [str(HAPROXY_BINARY), "-db", "-f", str(path)]


def _envoy(folder: Path, port: int, servers: Sequence[int], _: bool) -> list[str]:
    text = (FILES / "envoy.yaml").read_text("utf-8")
    path = _written(folder, "envoy.yaml", text, port, servers[0])
    return [str(ENVOY_BINARY), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]


def _caddy(folder: Path, port: int, servers: Sequence[int], _: bool) -> list[str]:
    text = "{\n\tadmin off\n}\n" + (FILES / "Caddyfile").read_text("utf-8")
    path = _written(folder, "Caddyfile", text, port, servers[0])
    return [str(_CADDY), "run", "--adapter", "caddyfile", "--config", str(path)]


def _varnish(folder: Path, port: int, servers: Sequence[int], _: bool) -> list[str]:
    text = (FILES / "varnish.vcl").read_text("utf-8")
    path = _written(folder, "varnish.vcl", text, port, servers[0])
    words = [str(_VARNISH), "-F", "-j", "none", "-n", str(folder / "run"), "-f", str(path)]
    vmods = DEBIAN / "varnish" / "usr" / "lib" / "varnish" / "vmods"
    words += ["-a", f"127.0.0.1:{port}", "-s", "malloc,64m", "-p", f"vmod_path={vmods}"]
    return [*words, "-p", "pipe_timeout=3600"]


_NGINX_PACKAGES = packages("nginx")
_CADDY_PACKAGES = packages("caddy")
_VARNISH_PACKAGES = packages("varnish", "libvarnishapi3", "libjemalloc2")


def _nginx_version() -> str:
    return version_of([str(_NGINX), "-v"], r"nginx/(\d+\.\d+\.\d+)", _NGINX_PACKAGES())


PROXIES = (
    Router("nginx", _nginx_version, _nginx("nginx.conf"), _NGINX_PACKAGES),
    Router("nginx that is not told anything", _nginx_version, _nginx(), _NGINX_PACKAGES),
    Router("HAProxy", haproxy_version, _haproxy, HAPROXY_PACKAGES),
    Router("Envoy", envoy_version, _envoy),
    Router(
        "Caddy",
        lambda: version_of([str(_CADDY), "version"], r"v?(\d+\.\d+\.\d+)", _CADDY_PACKAGES()),
        _caddy,
        _CADDY_PACKAGES,
    ),
    Router(
        "Varnish",
        lambda: version_of([str(_VARNISH), "-V"], r"varnish-(\d+\.\d+\.\d+)", _VARNISH_PACKAGES()),
        _varnish,
        _VARNISH_PACKAGES,
    ),
)
