"""Playwright's `expect`, imported when it is first used: collecting tests need not wait for it."""

from typing import Any


def expect(actual: Any) -> Any:
    """What a page or a part of it should become."""
    from playwright.sync_api import expect as playwrights

    return playwrights(actual)
