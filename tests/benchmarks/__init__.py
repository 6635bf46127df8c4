"""Measurements: ``make bench``, or ``python -m tests.benchmarks --help``.

Every figure stands next to plain psycopg on the same server, in the same run, into the same table
with the same indexes. Nothing here is asserted: machines differ, and a timed test is a flaky one.
"""
