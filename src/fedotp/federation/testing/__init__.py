"""Testing: predictions of models, their evaluation, and views."""

from fedotp.federation.testing._evaluation import Evaluation as Evaluation
from fedotp.federation.testing._evaluation import LocalTester as LocalTester
from fedotp.federation.testing._evaluation import Predictions as Predictions
from fedotp.federation.testing._predict import Predictor as Predictor
from fedotp.federation.testing._tests import GLOBAL as GLOBAL
from fedotp.federation.testing._tests import PERSONAL as PERSONAL
from fedotp.federation.testing._tests import WITH_PRIOR as WITH_PRIOR
from fedotp.federation.testing._tests import ZERO_SHOT as ZERO_SHOT
from fedotp.federation.testing._tests import ModelTests as ModelTests
from fedotp.federation.testing._tests import View as View
