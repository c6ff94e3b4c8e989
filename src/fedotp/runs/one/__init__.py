"""One run: its data and backbone, its rounds, its manifest and its stored parameters."""

from fedotp.runs.one._inputs import encode_for as encode_for
from fedotp.runs.one._inputs import load_backbone as load_backbone
from fedotp.runs.one._inputs import load_data as load_data
from fedotp.runs.one._inputs import make_task as make_task
from fedotp.runs.one._inputs import template_of as template_of
from fedotp.runs.one._loop import Loop as Loop
from fedotp.runs.one._manifest import made_with as made_with
from fedotp.runs.one._parameters import StoredParameters as StoredParameters
from fedotp.runs.one._parameters import class_numbers as class_numbers
from fedotp.runs.one._parameters import join as join
from fedotp.runs.one._prepare import Preparation as Preparation
from fedotp.runs.one._prepare import Prepared as Prepared
from fedotp.runs.one._prepare import prepare as prepare
from fedotp.runs.one._run import evaluate_run as evaluate_run
from fedotp.runs.one._run import opened as opened
from fedotp.runs.one._run import restore as restore
from fedotp.runs.one._run import resume as resume
from fedotp.runs.one._run import run as run
from fedotp.runs.one._run import see_run as see_run
