"""Blends: members, held-out responses, weights, schedules with a time limit."""
