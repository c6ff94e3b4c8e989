"""One self-contained HTML page about runs: it needs their directories alone, neither data nor backbone."""

from fedotp.report.page._page import Analysed, is_page, make_page, write_page

__all__ = ["Analysed", "is_page", "make_page", "write_page"]
