"""All entries by name."""

from fedotp.paper._entry import Entry, find_entry
from fedotp.paper._figures import FIGURES
from fedotp.paper._tables import TABLES

ENTRIES = {entry.name: entry for entry in (*TABLES, *FIGURES)}


def entry_named(name: str) -> Entry:
    """An entry by its name, however it is spelt: "Table A2" is tableA2."""
    return find_entry(ENTRIES, name)
