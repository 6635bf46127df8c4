from django.apps import AppConfig


class BenchmarksConfig(AppConfig):
    name = "tests.benchmarks"
    label = "benchmarks"
