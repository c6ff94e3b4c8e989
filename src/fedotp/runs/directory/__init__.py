"""The directory of a run: its files, what they say, and whether they are intact; none of it imports torch."""

from fedotp.runs.directory._checksum import read_sealed as read_sealed
from fedotp.runs.directory._checksum import sealed as sealed
from fedotp.runs.directory._directory import PLACES as PLACES
from fedotp.runs.directory._directory import RunDirectory as RunDirectory
from fedotp.runs.directory._directory import find_runs as find_runs
from fedotp.runs.directory._directory import free_name as free_name
from fedotp.runs.directory._directory import reading as reading
from fedotp.runs.directory._provenance import MissingMethodError as MissingMethodError
from fedotp.runs.directory._provenance import origin_facts as origin_facts
from fedotp.runs.directory._provenance import other_origins as other_origins
from fedotp.runs.directory._provenance import require_same_code as require_same_code
from fedotp.runs.directory._rounds import VALUE_FORMAT as VALUE_FORMAT
from fedotp.runs.directory._rounds import WHEN as WHEN
from fedotp.runs.directory._rounds import as_csv as as_csv
from fedotp.runs.directory._rounds import by_model as by_model
from fedotp.runs.directory._rounds import read_value as read_value
from fedotp.runs.directory._rounds import rounds_of as rounds_of
from fedotp.runs.directory._rounds import summary_of_views as summary_of_views
from fedotp.runs.directory._rounds import view_numbers as view_numbers
