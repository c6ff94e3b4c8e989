"""The directory of a run: its files, their contents and integrity; nothing here imports torch."""

from fedotp.runs.directory._directory import RunDirectory as RunDirectory
from fedotp.runs.directory._directory import find_runs as find_runs
from fedotp.runs.directory._directory import free_name as free_name
from fedotp.runs.directory._directory import metrics_line as metrics_line
from fedotp.runs.directory._rounds import as_csv as as_csv
from fedotp.runs.directory._rounds import rounds_of as rounds_of
from fedotp.runs.directory._rounds import summary_of_views as summary_of_views
