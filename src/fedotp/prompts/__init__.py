"""Learned prompts: context vectors around class names, and their encoding by the frozen text tower."""

from fedotp.prompts._encode import FeatureEncoder as FeatureEncoder
from fedotp.prompts._encode import PromptEncoder as PromptEncoder
from fedotp.prompts._layout import N_CTX as N_CTX
from fedotp.prompts._layout import POSITION as POSITION
from fedotp.prompts._layout import STD as STD
from fedotp.prompts._layout import Position as Position
from fedotp.prompts._layout import random_context as random_context
from fedotp.prompts._layout import word_context as word_context
