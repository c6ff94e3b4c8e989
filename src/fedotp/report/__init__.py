"""Figures and analyses of runs, their prompts and their transport plans."""

from fedotp.report._analysis import analyse as analyse
from fedotp.report._client import in_turn as in_turn
from fedotp.report._curves import plot_against as plot_against
from fedotp.report._curves import plot_curves as plot_curves
from fedotp.report._curves import plot_partition as plot_partition
from fedotp.report._dossier import make_dossier as make_dossier
from fedotp.report._maps import ImageMap as ImageMap
from fedotp.report._maps import plot_maps as plot_maps
from fedotp.report._maps import plot_plan_maps as plot_plan_maps
from fedotp.report._maps import plot_similarity as plot_similarity
from fedotp.report._maps import same_images as same_images
from fedotp.report._maps import some_maps as some_maps
from fedotp.report._plans import plan_statistics as plan_statistics
from fedotp.report._tsne import project_prompts as project_prompts
