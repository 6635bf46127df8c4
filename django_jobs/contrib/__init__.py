"""What projects add to other parts of Django."""
