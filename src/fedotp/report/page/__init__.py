"""One self-contained HTML page about runs, from their directories only, without data and backbone."""

from fedotp.report.page._page import Analysed as Analysed
from fedotp.report.page._page import is_page as is_page
from fedotp.report.page._page import write_page as write_page
