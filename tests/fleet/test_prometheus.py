"""The dashboards' queries, asked of a real Prometheus that scrapes the servers' front ends."""

import contextlib
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from debian_package import PackageError, unpacked

from tests.support.run.places import ROOT
from tests.support.run.ports import free_ports
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.pods import MODEL, Pod
from tests.support.servers.routers import DEBIAN

DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def prometheus(servers: list[Pod], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of one that has looked at each server several times."""
    try:
        binary = unpacked("prometheus", DEBIAN) / "usr" / "bin" / "prometheus"
    except PackageError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [each.served.front_end for each in servers]
    job = {"job_name": "lmi", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}), "utf-8")
    (port,) = free_ports(1)
    words = [str(binary), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}"]
    with (folder / "log").open("wb") as log:
        words.append(f"--web.listen-address=127.0.0.1:{port}")
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        body = {"model": MODEL, "prompt": "a b", "max_tokens": 2}
        for each in servers:
            assert each.served.ask("/v1/completions", body)[0] == 200
        query = "min(count_over_time(vllm:num_requests_running[30s])) > 3"
        wait_for(lambda: process.poll() is None and _asked(port, query))
        yield port
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def _asked(port: int, query: str) -> list[Any]:
    """Return the series of an answer; none while it starts."""
    words = urllib.parse.urlencode({"query": query})
    with contextlib.suppress(ConnectionError, urllib.error.URLError):
        url = f"http://127.0.0.1:{port}/api/v1/query?{words}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)
        assert result["status"] == "success"
        found: list[Any] = result["data"]["result"]
        return found
    return []


def _queries(board: str) -> Iterator[tuple[str, str]]:
    panels = json.loads((DEPLOY / board).read_text("utf-8"))["panels"]
    for panel in panels:
        for target in panel["targets"]:
            # As Grafana fills them in where everything is chosen.
            query = re.sub(r"\$(namespace|pod|model)\b", ".*", target["expr"])
            yield target["legendFormat"], query.replace("$__rate_interval", "20s")


def test_each_panel_of_the_fleet_shows_each_server(prometheus: int, servers: list[Pod]) -> None:
    # Nothing has failed yet.
    for legend, query in _queries("grafana-fleet.json"):
        found = _asked(prometheus, query)
        if "outcome" not in legend:
            assert len(found) == (len(servers) if "instance" in legend else 1), query


def test_each_panel_of_a_server_can_be_asked(prometheus: int) -> None:
    shown = [
        legend for legend, query in _queries("grafana-dashboard.json") if _asked(prometheus, query)
    ]
    assert len(shown) >= 10
