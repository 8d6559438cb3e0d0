"""Occupancy calculations, which need neither a driver nor a GPU."""

from cujit.occupancy.products import Product
from cujit.occupancy.residency import Limiter
from cujit.occupancy.result import Occupancy
from cujit.occupancy.subject import of, plot

__all__ = ["Limiter", "Occupancy", "Product", "of", "plot"]
