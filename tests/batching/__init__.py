"""Tests of batching: the daemon computes runs of several clients together."""
