"""Arithmetic on two operands, with broadcasting."""
