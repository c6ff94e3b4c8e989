"""Learned prompts: context vectors around class names, and their way through the frozen text tower."""

from fedotp.prompts._context import random_context, word_context
from fedotp.prompts._encode import PromptEncoder
from fedotp.prompts._layout import Position

__all__ = ["Position", "PromptEncoder", "random_context", "word_context"]
