"""The status of a server and a site: facts from events, metrics that Prometheus' own parser reads, who may ask."""

import json
import logging
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from near_sites import make_deployable
from prometheus_client.parser import text_string_to_metric_families
from real_processes import make_study, processes
from status_made import EVIL, SERVER, SITES, a_server, feed, orders_of_site, run_of_server, shown

from fedotp.errors import FedotpError
from fedotp.flower._events import handling
from fedotp.flower.link._superlink import free_port
from fedotp.flower.status import Status, StatusAddress, serve_status

SITES_BY_KEY = ("one", "two", "three")
TOKEN = "a-token-of-some-length"
Scrape = dict[tuple[str, str], float]


def scrape(url: str) -> Scrape:
    """Values by name and peer."""
    answer = httpx.get(f"{url}metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(s.name, s.labels.get("site", s.labels.get("server", ""))): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def test_a_server_shows_sites_rounds_and_what_it_has_refused() -> None:
    with shown(a_server()) as url:
        empty = scrape(url)
        assert [empty["fedotp_site_connected", site] for site in SITES] == [0, 0, 0]
        assert ("fedotp_round", "") not in empty
        run_of_server(3)
        found, state = scrape(url), httpx.get(f"{url}status.json").json()
    own = {name.removeprefix("fedotp_"): value for (name, site), value in found.items() if not site}
    expected = {"round": 3, "rounds": 50, "rounds_done_total": 3, "round_seconds_total": 7.5, "last_round_seconds": 2.5}
    expected |= {"privacy_epsilon": 0.5, "privacy_delta": 1e-5, "loss": 2 / 3, "keys_refused_total": 1}
    assert expected.items() <= own.items()
    for key, values in {
        "connected": [1, 1, 0],
        "updates_accepted_total": [3, 3, 0],
        "updates_refused_total": [0, 0, 3],
        "training_images": [100, 101, 102],
        "accuracy": [0.75, 0.5],
    }.items():
        assert [found[f"fedotp_site_{key}", site] for site in SITES[: len(values)]] == values
    assert found["fedotp_site_last_seen_timestamp_seconds", "south"] == 2e9
    assert state["accuracy"] == [[1, 0.5], [2, 0.75], [3, pytest.approx(5 / 6)]]
    assert [peer["fault"] != "" for peer in state["peers"]] == [False, False, True]


def test_a_site_shows_its_own_numbers_and_nothing_of_others() -> None:
    with shown(Status("site", [SERVER], {SERVER: 2e9}, EVIL)) as url:
        orders_of_site()
        found, text = scrape(url), httpx.get(f"{url}status.json").text
    expected = {"round": 8, "orders_total": 2, "orders_refused_total": 1, "updates_total": 1, "accuracy": 0.75}
    expected |= {"privacy_epsilon": 0.5, "privacy_epsilon_of_all_runs": 1.5}
    assert {(f"fedotp_{name}", ""): value for name, value in expected.items()}.items() <= found.items()
    assert found["fedotp_server_connected", SERVER] == 1
    assert not any(name.startswith("fedotp_site_") for name, _ in found)
    assert json.loads(text)["name"] == EVIL
    assert not {"south", "east"} & set(text.replace('"', " ").split())


def test_a_site_that_is_silent_is_not_connected_and_a_sites_warnings_name_no_files() -> None:
    server = Status("server", ["south", "east"], {"south": time.time() - 100, "east": time.time()})
    with shown(server):
        feed(*(("ready", {"site": site, "images": 1}) for site in ("south", "east")))
    assert [peer["connected"] for peer in server.as_dict()["peers"]] == [False, True]
    site = Status("site", [SERVER], {}, "north")
    with shown(site):
        logging.getLogger("fedotp.site").warning("cannot read scans/jane-doe.png")
    ((_, level, text),) = site.as_dict()["warnings"]
    assert (level, text) == ("WARNING", "see the log")


def test_warnings_are_shown_newest_first_in_one_line_each() -> None:
    with shown(a_server()) as url:
        logger = logging.getLogger("fedotp.server")
        for number in range(40):
            logger.warning("site %s:\n%d", "north", number)
        logger.info("nothing special")
        state = httpx.get(f"{url}status.json").json()
        assert scrape(url)["fedotp_warnings_total", ""] == 40
    assert [text for _, _, text in state["warnings"]] == [f"site north: {number}" for number in range(39, 9, -1)]


@pytest.mark.parametrize("path", ["", "healthz", "metrics", "status.json"])
def test_only_get_and_only_by_a_name_that_no_foreign_page_can_have(path: str) -> None:
    with shown(a_server()) as url:
        port = httpx.URL(url).port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]:9"):
            assert httpx.get(url + path, headers={"host": host}).status_code == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "x@127.0.0.1"):
            assert httpx.get(url + path, headers={"host": host}).status_code == 403
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert httpx.request(method, url + path).status_code == 405
        headers = httpx.get(url + path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


def test_a_token_is_needed_for_facts_and_for_nothing_else() -> None:
    events: list[str] = []
    with shown(a_server(), TOKEN) as url, handling(lambda event, _: events.append(event)):
        assert httpx.get(f"{url}healthz", headers={"host": "pod.example"}).text == "ok\n"
        page = httpx.get(url)
        assert page.status_code == 200
        assert "south" not in page.text
        for path in ("metrics", "status.json", "other"):
            for wrong in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": f"Basic {TOKEN}"}):
                answer = httpx.get(url + path, headers=wrong)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        right = {"authorization": f"Bearer {TOKEN}", "host": "status.example.org"}
        assert "south" in httpx.get(f"{url}metrics", headers=right).text
        assert httpx.get(f"{url}other", headers=right).status_code == 404
    assert events == ["status-refused"]  # once a minute


def test_addresses(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "short").write_text("secret\n")
    assert StatusAddress.parse("[::1]:9100", None) == StatusAddress("::1", 9100)
    assert StatusAddress.parse("0.0.0.0:9100", tmp_path / "token") == StatusAddress("0.0.0.0", 9100, TOKEN)
    for address, token, message in (
        ("0.0.0.0:9100", None, "other machines can reach this address; give --status-token FILE"),
        ("9100", None, "must be HOST:PORT"),
        ("127.0.0.1:9100", "short", "must be one line of at least 16 ASCII characters"),
        ("127.0.0.1:9100", "absent", "absent"),
    ):
        with pytest.raises(FedotpError, match=message):
            StatusAddress.parse(address, tmp_path / token if token else None)
    with shown(a_server()) as url:
        taken = StatusAddress("127.0.0.1", httpx.URL(url).port or 0)
        with pytest.raises(FedotpError, match="choose another --status"), serve_status(taken, a_server()):
            pass


@pytest.mark.processes
def test_processes_show_their_status(inputs: Path, tmp_path: Path) -> None:
    port = make_study(tmp_path, make_deployable(inputs, federation={"rounds": 4}), SITES_BY_KEY)
    urls = {name: f"http://127.0.0.1:{free_port()}/" for name in ("server", "one")}
    at = {name: ("--status", httpx.URL(url).netloc.decode()) for name, url in urls.items()}
    seen: list[tuple[Scrape, Scrape]] = []

    def watched() -> bool:
        with suppress(httpx.HTTPError):
            seen.append((scrape(urls["server"]), scrape(urls["one"])))
        return started.running["server"].poll() is not None

    with processes(tmp_path) as started:
        started.start_server(port, *at["server"])
        for part, site in enumerate(SITES_BY_KEY):
            started.start_site(part, site, port, *at.get(site, ()))
        started.until(watched)
        assert started.wait("server") == 0, started.all_logs()
        assert scrape(urls["one"])["fedotp_updates_total", ""] == 4
    assert any(all(each["fedotp_site_connected", site] for site in SITES_BY_KEY) for each, _ in seen)
    assert any(each.get(("fedotp_round", ""), 0) > 0 for each, _ in seen)
    assert seen[-1][1]["fedotp_server_connected", f"localhost:{port}"] == 1
