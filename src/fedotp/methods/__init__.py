"""Methods of federated prompt learning: all declared through `Method`."""

from fedotp.methods._by_name import METHODS as METHODS
from fedotp.methods._by_name import find_method as find_method
from fedotp.methods._by_name import method_names as method_names
from fedotp.methods._by_name import origin_of as origin_of
from fedotp.methods._fedotp import FedOTP as FedOTP
from fedotp.methods._fedotp import dial_of as dial_of
from fedotp.methods._method import Dial as Dial
from fedotp.methods._method import Method as Method
from fedotp.methods._method import OptimizerName as OptimizerName
from fedotp.methods._method import Rate as Rate
from fedotp.methods._parts import IMAGES as IMAGES
from fedotp.methods._parts import Batch as Batch
from fedotp.methods._parts import Kind as Kind
from fedotp.methods._parts import Memory as Memory
from fedotp.methods._parts import Need as Need
from fedotp.methods._parts import Parameters as Parameters
from fedotp.methods._parts import Prompt as Prompt
from fedotp.methods._promptfl import ZeroShot as ZeroShot
from fedotp.methods._ridge import REGS as REGS
from fedotp.methods._ridge import PersonalRidge as PersonalRidge
from fedotp.methods._ridge import left_out as left_out
from fedotp.methods._task import PRECISION as PRECISION
from fedotp.methods._task import Precision as Precision
from fedotp.methods._task import PromptSettings as PromptSettings
from fedotp.methods._task import Task as Task
