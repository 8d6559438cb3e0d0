"""Instrumentation of kernels for checks, traces, and coverage: the code that it adds, and its reports."""
