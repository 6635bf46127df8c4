"""The app whose jobs the tests run."""
