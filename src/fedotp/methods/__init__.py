"""Methods of federated prompt learning: all declared through `Method`."""

from fedotp.methods._batch import Batch, Memory, Need
from fedotp.methods._by_name import METHODS, find_method, method_names, origin_of
from fedotp.methods._dial import Dial, dial_of
from fedotp.methods._dpfpl import DPFPL
from fedotp.methods._fedamp import PromptFLAmp
from fedotp.methods._fedclip import FedCLIP
from fedotp.methods._fedmgp import FedMGP
from fedotp.methods._fedotp import FedOTP
from fedotp.methods._fedpgp import FedPGP
from fedotp.methods._fedpha import FedPHA
from fedotp.methods._fedtpg import FedTPG
from fedotp.methods._method import LearningRates, Method, OptimizerName, Rate, weighted_average
from fedotp.methods._pfedmoap import PFedMoAP
from fedotp.methods._pfedprompt import PFedPrompt
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._promptfl import CoOp, PromptFL, PromptFLFineTuned, PromptFLPer, PromptFLProx, ZeroShot
from fedotp.methods._promptfolio import PromptFolio
from fedotp.methods._task import PRECISION, Precision, PromptSettings, Task

__all__ = [
    "DPFPL",
    "METHODS",
    "PRECISION",
    "Batch",
    "CoOp",
    "Dial",
    "FedCLIP",
    "FedMGP",
    "FedOTP",
    "FedPGP",
    "FedPHA",
    "FedTPG",
    "Kind",
    "LearningRates",
    "Memory",
    "Method",
    "Need",
    "OptimizerName",
    "PFedMoAP",
    "PFedPrompt",
    "Parameters",
    "Precision",
    "Prompt",
    "PromptFL",
    "PromptFLAmp",
    "PromptFLFineTuned",
    "PromptFLPer",
    "PromptFLProx",
    "PromptFolio",
    "PromptSettings",
    "Rate",
    "Task",
    "ZeroShot",
    "dial_of",
    "find_method",
    "method_names",
    "origin_of",
    "weighted_average",
]
