"""The jobs that the tests run."""
