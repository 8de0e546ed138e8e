import json
from datetime import date, timedelta

import check_peers
import pytest


def test_a_row_is_old_after_60_days(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(check_peers.PEERS.read_text("utf-8"))["peers"]
    latest = max(date.fromisoformat(row["read"]) for row in rows)
    assert not list(check_peers.old(rows, min(date.fromisoformat(row["read"]) for row in rows)))
    assert len(list(check_peers.old(rows, latest + timedelta(61)))) == len(rows)
    assert all(row["source"].startswith("https://") and row["known"] for row in rows)
    check_peers.main()
    assert "failed" not in capsys.readouterr().out
