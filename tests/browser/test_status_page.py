"""The status page in a real browser: what it shows of a server and of a site, on a phone, with a token."""

import logging
from typing import TYPE_CHECKING

import pytest
from expected import expect

pytest.importorskip("flwr")

from fedotp.flower.status import Status
from flower.status_made import EVIL, SERVER, SITES, a_server, orders_of_site, run_of_server, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "a-token-of-some-length"


def test_a_server_and_its_rounds_as_they_come(page: "Page") -> None:
    with shown(a_server()) as url:
        page.goto(url)
        page.wait_for_selector("body[data-ready=server]")
        expect(page.locator("#numbers")).to_contain_text("0 of 3")
        expect(page.locator("#curves section")).to_have_count(0)
        run_of_server(3)
        logging.getLogger("fedotp.server").warning("site <i>east</i> disconnected")
        expect(page.locator("#numbers")).to_contain_text("3 of 50")
        expect(page.locator("#numbers")).to_contain_text("2 of 3")
        rows = page.locator("#sites tbody tr")
        assert [row.locator("td").first.inner_text().split("\n")[0] for row in rows.all()][1:] == list(SITES[1:])
        expect(rows.first).to_contain_text(EVIL.split("\n")[0])  # as text
        expect(rows.last).to_contain_text("not finite")
        expect(page.locator("#warnings li")).to_contain_text("<i>east</i>")
        assert page.locator("#curves output").all_inner_texts() == ["round 3: 83.3 %", "round 3: 0.667"]
        page.locator("#curves svg").first.hover(position={"x": 55, "y": 60})
        expect(page.locator("#curves output").first).to_have_text("round 1: 50.0 %")
        page.goto("about:blank")


def test_a_site_with_a_token_on_a_phone_until_it_stops(browser: "Browser") -> None:
    """Chromium's own lines about refused requests are permitted."""
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    with shown(Status("site", [SERVER], {SERVER: 2e9}, EVIL), TOKEN) as url:
        page.goto(url)
        expect(page.locator("#live")).to_have_text("give the token")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_have_text("the token is wrong")
        expect(page.locator("main")).to_be_hidden()
        orders_of_site()
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready=site]")
        assert page.locator("#numbers dt").all_inner_texts() == [
            *("Server", "Last order", "Updates sent", "Orders refused", "Accuracy", "Epsilon spent")
        ]
        expect(page.locator("h1")).to_contain_text(EVIL.split("\n")[0])
        expect(page.locator("#sites")).to_be_hidden()
        expect(page.locator("#login")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 24)"
    expect(page.locator("#live")).to_contain_text("no answer since")
    page.close()
    assert not errors
