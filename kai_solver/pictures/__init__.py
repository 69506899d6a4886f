"""What all figures have in common: one style, SVG or PNG, and their data as CSV beside them."""

from kai_solver.pictures.drawing import COLOURS, GREY, INK, PALE, Data, check_place, data_place, draw, ticks

__all__ = ["COLOURS", "GREY", "INK", "PALE", "Data", "check_place", "data_place", "draw", "ticks"]
