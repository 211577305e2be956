"""Data moved but not changed: new shapes, orders, joins, parts, repetitions and borders."""
