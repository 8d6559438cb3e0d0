"""Budgets: limits on the resource usage of kernels, checked without a GPU."""

from cujit.budget.budgets import Budget, check
from cujit.budget.file import read_budgets
from cujit.budget.report import BudgetReport, BudgetRow

__all__ = ["Budget", "BudgetReport", "BudgetRow", "check", "read_budgets"]
