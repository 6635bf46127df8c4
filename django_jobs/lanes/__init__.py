"""Lanes: of several pieces of work on one thing, the newest wins.

``advice`` is what the job system asks; it never raises and never decides.
"""
