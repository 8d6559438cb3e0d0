"""Budgets: what kernels may use at most, checked on their machine code; no GPU is needed."""

from cujit.budget.budgets import Budget, check
from cujit.budget.file import read_budgets
from cujit.budget.report import BudgetReport, BudgetRow

__all__ = ["Budget", "BudgetReport", "BudgetRow", "check", "read_budgets"]
