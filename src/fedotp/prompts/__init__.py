"""Learned prompts: context vectors around class names, and their way through the frozen text tower."""

from fedotp.prompts._encode import PromptEncoder
from fedotp.prompts._layout import N_CTX, POSITION, STD, Position, random_context, word_context

__all__ = ["N_CTX", "POSITION", "STD", "Position", "PromptEncoder", "random_context", "word_context"]
