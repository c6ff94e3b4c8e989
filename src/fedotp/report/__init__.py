"""Pictures of runs, and what is in their prompts."""

from fedotp.report._analysis import Analysis, analyse
from fedotp.report._client import in_turn
from fedotp.report._curves import Line, lines_against, plot_against, plot_curves
from fedotp.report._figure import COLOURS, FIGURE_FORMATS, MARKERS, bare, new_figure, save_figure
from fedotp.report._learned import PromptWords, VectorWords, nearest_words, prompt_words, word_spacing
from fedotp.report._limits import ClientLimits, Limits
from fedotp.report._maps import (
    ImageMap,
    image_maps,
    plot_maps,
    plot_plan_maps,
    plot_similarity,
    same_images,
    some_maps,
    transport_maps,
)
from fedotp.report._plans import (
    PlanStatistics,
    plan_entropy,
    plan_overlap,
    plan_statistics,
    plot_plans,
    unassigned_share,
)
from fedotp.report._theorem import Bound, generalization_bound, measure_bound
from fedotp.report._tsne import Projection, plot_projection, project_prompts

__all__ = [
    "COLOURS",
    "FIGURE_FORMATS",
    "MARKERS",
    "Analysis",
    "Bound",
    "ClientLimits",
    "ImageMap",
    "Limits",
    "Line",
    "PlanStatistics",
    "Projection",
    "PromptWords",
    "VectorWords",
    "analyse",
    "bare",
    "generalization_bound",
    "image_maps",
    "in_turn",
    "lines_against",
    "measure_bound",
    "nearest_words",
    "new_figure",
    "plan_entropy",
    "plan_overlap",
    "plan_statistics",
    "plot_against",
    "plot_curves",
    "plot_maps",
    "plot_plan_maps",
    "plot_plans",
    "plot_projection",
    "plot_similarity",
    "project_prompts",
    "prompt_words",
    "same_images",
    "save_figure",
    "some_maps",
    "transport_maps",
    "unassigned_share",
    "word_spacing",
]
